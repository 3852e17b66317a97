package addressvote

import (
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Voter is a server's side. It is made by NewVoter.
type Voter struct {
	now     func() time.Time
	started time.Time
	vips    []netip.Addr

	mu     sync.Mutex
	pool   map[netip.Addr][]string // the nodes that may announce an address
	ports  map[netip.Addr][]string // of addresses of Gateways, which are in pool too
	known  bool                    // pool was set
	nodes  map[string]candidate
	votes  map[netip.Addr]vote
	ends   map[string]func() // ends the present connection of a node
	wanted chan struct{}     // closed by the first node that asks
	once   sync.Once
}

// candidate is a node that sends Beats.
type candidate struct {
	server, healthy, majority, gateway bool
	holds, refuses                     map[netip.Addr]bool
	seen                               time.Time
}

// vote is what the server gave away.
type vote struct {
	node  string
	until time.Time
}

// NewVoter returns the voter of a server. vips are the addresses of the API, which only servers get.
func NewVoter(vips []netip.Addr) *Voter { return newVoter(vips, time.Now) }

// Open begins the grace period. It is called just before nodes can connect.
func (v *Voter) Open() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.started = v.now()
}

func newVoter(vips []netip.Addr, now func() time.Time) *Voter {
	return &Voter{
		now: now, started: now(), vips: vips, pool: map[netip.Addr][]string{}, nodes: map[string]candidate{}, votes: map[netip.Addr]vote{},
		ends: map[string]func(){}, wanted: make(chan struct{}),
	}
}

// Wanted is closed when the first node asks for votes. Until then nobody needs to know who may announce what.
func (v *Voter) Wanted() <-chan struct{} { return v.wanted }

// Serves reports whether the server votes already, for a node that asks: not before its pools are known, because a Ballot without votes would take the
// node's addresses away. Nodes keep their votes until then.
func (v *Voter) Serves() bool {
	v.once.Do(func() { close(v.wanted) })
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.known
}

// SetPool replaces the addresses of Services and Gateways, each with the nodes that may announce it, and the ports of those of Gateways, which only
// nodes with a gateway that serves get. The first call begins the grace period.
func (v *Voter) SetPool(pool, ports map[netip.Addr][]string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.known {
		v.known, v.started = true, v.now()
	}
	v.pool, v.ports = pool, ports
}

// Conn is a connection of a node.
type Conn struct {
	voter *Voter
	node  string
	// server says that the node is a server of the cluster.
	server bool
	over   bool
}

// Connect begins a connection of a node, which may be a server of the cluster, and ends its former one with the function that it was given: a Beat that is late there must not
// count any more.
func (v *Voter) Connect(node string, server bool, end func()) *Conn {
	v.mu.Lock()
	defer v.mu.Unlock()
	if former := v.ends[node]; former != nil {
		former()
	}
	c := &Conn{voter: v, node: node, server: server}
	v.ends[node] = func() { c.over = true; end() }
	return c
}

// setServer notes that the node is a server of the cluster.
func (c *Conn) setServer() {
	c.voter.mu.Lock()
	defer c.voter.mu.Unlock()
	c.server = true
}

// Close ends the connection. The node's votes stay until they expire.
func (c *Conn) Close() {
	c.voter.mu.Lock()
	defer c.voter.mu.Unlock()
	if !c.over {
		c.over = true
		delete(c.voter.ends, c.node)
	}
}

// Beat takes a Beat of the node, and returns the votes. ok is false if the connection has ended.
func (c *Conn) Beat(b Beat) (out Ballot, ok bool) {
	c.voter.mu.Lock()
	defer c.voter.mu.Unlock()
	if c.over {
		return Ballot{}, false
	}
	return c.voter.beat(c.node, c.server, b), true
}

// beat is Beat under the lock.
func (v *Voter) beat(node string, server bool, b Beat) Ballot {
	now := v.now()
	v.forget(now)
	for _, a := range b.Yields {
		v.withdraw(node, a)
	}
	if b.Leaving {
		for a := range v.votes {
			v.withdraw(node, a)
		}
		delete(v.nodes, node)
		return Ballot{Seq: b.Seq}
	}
	v.nodes[node] = candidate{server: server, healthy: b.Healthy, majority: b.Majority, gateway: b.Gateway, holds: v.ours(b.Holds), refuses: v.ours(b.Refuses), seen: now}
	out := Ballot{Seq: b.Seq}
	for a, able := range v.pool {
		ports, local := v.ports[a]
		if local {
			able = v.gateways(able)
		}
		if !v.decide(a, node, able, now) {
			continue
		}
		out.Votes, out.Guarded = append(out.Votes, a), append(out.Guarded, a)
		if local {
			if out.Ports == nil {
				out.Ports = map[netip.Addr][]string{}
			}
			out.Ports[a] = ports
		}
	}
	for _, a := range v.vips {
		if v.decide(a, node, v.servers(), now) {
			out.Votes = append(out.Votes, a)
		}
	}
	return out
}

// ours returns those of a node's addresses that are voted on. What else a node says is not kept, nor looked at again.
func (v *Voter) ours(said []netip.Addr) map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	for _, a := range said {
		if _, pooled := v.pool[a]; pooled || slices.Contains(v.vips, a) {
			out[a] = true
		}
	}
	return out
}

// withdraw ends a vote that the node promised not to use.
func (v *Voter) withdraw(node string, a netip.Addr) {
	if v.votes[a].node == node {
		delete(v.votes, a)
	}
}

// forget drops what is over.
func (v *Voter) forget(now time.Time) {
	maps.DeleteFunc(v.nodes, func(_ string, c candidate) bool { return now.Sub(c.seen) > Grace })
	maps.DeleteFunc(v.votes, func(_ netip.Addr, given vote) bool { return !now.Before(given.until) })
}

// servers are the servers that may have the address of the API.
func (v *Voter) servers() (names []string) {
	for name, c := range v.nodes {
		if c.server && c.healthy {
			names = append(names, name)
		}
	}
	return names
}

// gateways returns those of some nodes whose gateways serve.
func (v *Voter) gateways(able []string) (names []string) {
	for _, name := range able {
		if v.nodes[name].gateway {
			names = append(names, name)
		}
	}
	return names
}

// decide gives a node the vote for an address, or renews it, and reports whether the node has it.
func (v *Voter) decide(a netip.Addr, node string, able []string, now time.Time) bool {
	if !slices.Contains(able, node) || v.nodes[node].refuses[a] {
		return false
	}
	given, taken := v.votes[a]
	holds := v.nodes[node].holds[a]
	switch {
	case taken && given.node != node:
		return false
	case taken && holds: // it stays where it is
	case !holds && now.Sub(v.started) < Grace:
		return false
	case v.preferred(a, able, now) != node:
		return false
	}
	v.votes[a] = vote{node, now.Add(Term)}
	return true
}

// preferred returns the living node that has the address already, by the votes of other servers, or else the one with the highest score; "" if
// there is none.
func (v *Voter) preferred(a netip.Addr, able []string, now time.Time) (best string) {
	var most standing
	for _, name := range able {
		c, known := v.nodes[name]
		if !known || now.Sub(c.seen) > awake || !c.majority || c.refuses[a] {
			continue
		}
		if s := (standing{c.holds[a], score(a, name)}); best == "" || most.less(s) {
			best, most = name, s
		}
	}
	return best
}

// standing compares candidates for an address.
type standing struct {
	holds bool
	score uint64
}

func (s standing) less(other standing) bool {
	if s.holds != other.holds {
		return other.holds
	}
	return s.score < other.score
}
