// Package addressvote decides which node announces an address that belongs to no node: one of a pool for load balancers, or that of the API.
//
// Every server votes. A node sends each server a Beat in short intervals, over mutual TLS, and gets a Ballot: the addresses for which the server
// votes for the node. A vote is valid for Term. A server gives no other node its vote for an address before that, and a node counts the term
// from when it sent the Beat. So the node with the valid votes of more than half of the servers is the only one, however packets are lost and processes
// stop; clocks need not agree, only run about equally fast. Nothing is stored: a server that starts votes, for the first Grace, only for
// the nodes that have the addresses already.
//
// The package has the messages, the server's side (Voter, Handler) and the node's count (Tally), and links no Kubernetes.
package addressvote

import (
	"encoding/binary"
	"hash/fnv"
	"net/netip"
	"time"
)

// Timing. A node that vanishes is replaced after Term and at most one Interval.
const (
	Interval = 400 * time.Millisecond // between two Beats
	Term     = 2 * time.Second        // of a vote
	// Grace is how long a server that has started votes only for nodes that have an address: its former votes are valid for so long.
	Grace = Term + time.Second
	// margin makes up for clocks that run differently, and for the time to remove an address.
	margin = 150 * time.Millisecond
	// awake is how long after its last Beat a node counts as alive. It is less than Term, so that the next vote is for another node.
	awake = 3*Interval + 100*time.Millisecond
)

// maxMessage is the largest size of a Beat, in bytes: more than a thousand addresses.
const maxMessage = 64 << 10

// A connection may have burst Beats at once, and then perSecond a second; a node sends a quarter of that.
const (
	burst     = 20
	perSecond = 10
)

// Beat is what a node sends.
type Beat struct {
	Seq uint64 `json:"seq"`
	// Holds are the addresses that the node has on its interfaces.
	Holds []netip.Addr `json:"holds,omitempty"`
	// Yields are addresses that the node has given up: it does not use earlier votes for them.
	Yields []netip.Addr `json:"yields,omitempty"`
	// Refuses are addresses that the node cannot announce.
	Refuses []netip.Addr `json:"refuses,omitempty"`
	// Majority says that more than half of the servers answer the node. One that reaches too few gets no votes, which would be lost.
	Majority bool `json:"majority,omitempty"`
	// Healthy says that the API server of the node's machine works.
	Healthy bool `json:"healthy,omitempty"`
	// Gateway says that the gateway of the node's machine serves.
	Gateway bool `json:"gateway,omitempty"`
	// Leaving says that the node gives up everything and wants nothing more.
	Leaving bool `json:"leaving,omitempty"`
}

// Ballot is the answer to a Beat.
type Ballot struct {
	Seq uint64 `json:"seq"` // of the Beat
	// Votes are the addresses for which the server votes for the node.
	Votes []netip.Addr `json:"votes,omitempty"`
	// Guarded are those of Votes at which the node's own processes must not be reached.
	Guarded []netip.Addr `json:"guarded,omitempty"`
	// Ports are, of those of Guarded that are addresses of Gateways, the ports at which the node's gateway must be reached, as "80/TCP".
	Ports map[netip.Addr][]string `json:"ports,omitempty"`
}

// score orders the candidates for an address: the one with the highest score is preferred. Each address has another order, so
// that addresses are spread over the nodes, and few move when a node comes or goes (rendezvous hashing).
func score(addr netip.Addr, node string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(addr.AsSlice()) // a hash returns no error
	_, _ = h.Write([]byte(node))
	var sum [8]byte
	binary.BigEndian.PutUint64(sum[:], h.Sum64())
	h = fnv.New64a() // once more, as FNV hardly mixes the last bytes
	_, _ = h.Write(sum[:])
	return h.Sum64()
}
