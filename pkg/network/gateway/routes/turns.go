package routes

import (
	"iter"
	"math/rand/v2"
	"slices"
	"sync/atomic"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// pool are the addresses of a backend, which take turns.
type pool struct {
	addresses []string
	turn      atomic.Uint32
}

// Next returns an address of a backend that is not among those that were tried; "" if there is none.
func (t *Table) Next(backend string, tried []string) string {
	if !t.Serves(backend) {
		return ""
	}
	p := t.endpoints[backend]
	turn := p.turn.Add(1)
	for i := range uint32(len(p.addresses)) {
		address := p.addresses[(turn+i)%uint32(len(p.addresses))]
		if !slices.Contains(tried, address) {
			return address
		}
	}
	return ""
}

// Serves reports whether a backend has an address.
func (t *Table) Serves(backend string) bool {
	p := t.endpoints[backend]
	return p != nil && len(p.addresses) > 0
}

// startOfTurns is not zero, because tables that live for a few requests only would give them all to the first backend.
func startOfTurns() uint32 { return rand.Uint32() }

// Pick returns the backend that has the turn; nil if there is none with a weight.
func (r *Route) Pick() *gateway.Backend { return pick(r.Backends, r.total, &r.turn) }

func pick(backends []gateway.Backend, total uint64, turn *atomic.Uint32) *gateway.Backend {
	if total == 0 {
		return nil
	}
	if len(backends) == 1 {
		return &backends[0]
	}
	at := share(turn.Add(1), total)
	for i := range backends {
		weight := uint64(max(0, backends[i].Weight))
		if at < weight {
			return &backends[i]
		}
		at -= weight
	}
	return nil
}

// Mirrored yields the backends that get a copy of the next request.
func (r *Route) Mirrored() iter.Seq[*gateway.Backend] {
	number := r.mirrored.Add(1)
	return func(yield func(*gateway.Backend) bool) {
		for i := range r.Mirrors {
			m := &r.Mirrors[i]
			if m.Denominator <= 0 || share(number, uint64(m.Denominator)) < uint64(max(0, m.Numerator)) {
				if !yield(&m.Backend) {
					return
				}
			}
		}
	}
}

// share maps a number that counts to one below total. Any numbers in a row are spread evenly, because the steps are by the golden ratio.
func share(number uint32, total uint64) uint64 {
	const ratio = 2654435769 // 2^32 divided by it
	return uint64(number*ratio) * total >> 32
}
