package routes

import (
	"hash/fnv"
	"math"
	"slices"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// Sessions choose by rendezvous hashing: of all that there are, the one with the highest score of session and name. One that comes takes its
// share from all others, one that goes leaves its sessions to all others, and nobody else moves. All nodes choose the same.

// PickFor returns the backend of a session; nil if there is none with a weight. One that has no endpoint is chosen only if all have none.
func (r *Route) PickFor(session uint64, t *Table) *gateway.Backend {
	var best *gateway.Backend
	least, served := math.Inf(1), false
	for i := range r.Backends {
		b := &r.Backends[i]
		if b.Weight <= 0 {
			continue
		}
		serves := t.Serves(b.Endpoints)
		// With an exponential variate of its weight as the rate each backend is the least as often as its weight says.
		score := -math.Log((float64(mix(session, hashOf(b.Endpoints))>>11)+0.5)/(1<<53)) / float64(b.Weight)
		if best == nil || serves && !served || serves == served && score < least {
			best, least, served = b, score, serves
		}
	}
	return best
}

// NextFor returns the address of a backend for a session that is not among those that were tried; "" if there is none.
func (t *Table) NextFor(backend string, session uint64, tried []string) string {
	if !t.Serves(backend) {
		return ""
	}
	best, most := "", uint64(0)
	for _, address := range t.endpoints[backend].addresses {
		if score := mix(session, hashOf(address)); (best == "" || score > most) && !slices.Contains(tried, address) {
			best, most = address, score
		}
	}
	return best
}

func hashOf(text string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	return h.Sum64()
}

// mix is the finalizer of SplitMix64.
func mix(a, b uint64) uint64 {
	x := a ^ b*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Expand returns a text in which ${1} and others are what the groups of the route's expression have matched of a path.
func (r *Route) Expand(path, text string) string {
	if r.path == nil {
		return text
	}
	return string(r.path.ExpandString(nil, text, path, r.path.FindStringSubmatchIndex(path)))
}
