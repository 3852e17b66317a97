package addressvote

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// world simulates servers and nodes on one clock. Messages are delivered at once, late, or never.
type world struct {
	now     time.Time
	random  *rand.Rand
	address netip.Addr
	able    []string
	voters  []*Voter // nil while its process is dead
	nodes   []*simulated
	late    []func()        // messages under way
	cut     map[[2]int]bool // of a node and a server
}

// simulated is a node that works as the announcer does.
type simulated struct {
	name   string
	alive  bool
	tally  Tally
	seq    uint64
	holds  bool
	yields bool
	conns  []*Conn
}

func newWorld(seed uint64, servers, nodes int) *world {
	w := &world{now: time.Unix(1e9, 0), random: rand.New(rand.NewPCG(seed, 1)), address: netip.MustParseAddr("192.0.2.1"), cut: map[[2]int]bool{}}
	for i := range nodes {
		n := &simulated{name: fmt.Sprint("n", i), conns: make([]*Conn, servers)}
		w.nodes, w.able = append(w.nodes, n), append(w.able, n.name)
		w.start(n)
	}
	w.voters = make([]*Voter, servers)
	for i := range servers {
		w.boot(i)
	}
	return w
}

func (w *world) boot(i int) {
	w.voters[i] = newVoter(nil, func() time.Time { return w.now })
	if w.random.IntN(2) == 0 { // else its pools are known a little later
		w.setPool(i)
	}
	for _, n := range w.nodes {
		n.conns[i] = nil
	}
}

func (w *world) setPool(i int) { w.voters[i].SetPool(map[netip.Addr][]string{w.address: w.able}, nil) }

func (w *world) start(n *simulated) {
	conns := n.conns
	*n = simulated{name: n.name, alive: true, conns: conns, seq: n.seq}
	clear(conns)
	var names []string
	for i := range conns {
		names = append(names, fmt.Sprint(i))
	}
	n.tally.SetServers(names)
}

// tick sends the Beats of a node, and updates what it holds.
func (w *world) tick(n *simulated) {
	n.seq++
	b := Beat{Seq: n.seq, Majority: n.tally.Majority(w.now)}
	if n.holds {
		b.Holds = []netip.Addr{w.address}
	}
	if n.yields {
		b.Yields, n.yields = []netip.Addr{w.address}, false
	}
	for i, v := range w.voters {
		sent, server := w.now, fmt.Sprint(i)
		switch {
		case w.cut[[2]int{slices.Index(w.nodes, n), i}]:
			continue
		case v == nil || !v.Serves():
			n.tally.Keep(server, sent)
			continue
		case n.conns[i] == nil || w.random.IntN(20) == 0:
			n.conns[i] = v.Connect(n.name, false, func() {})
		}
		conn := n.conns[i]
		deliver := func() {
			if answer, ok := conn.Beat(b); ok && w.random.IntN(10) > 0 {
				count := func() { n.tally.Count(server, answer, sent) }
				if w.random.IntN(4) == 0 {
					w.late = append(w.late, count)
				} else {
					count()
				}
			}
		}
		if w.random.IntN(4) == 0 || len(w.late) > 0 { // those of one connection stay in order, as with TCP
			w.late = append(w.late, deliver)
		} else {
			deliver()
		}
	}
}

// look makes a node use its votes, as it does several times between two Beats.
func (w *world) look(n *simulated) {
	held, _ := n.tally.Held(w.now)
	has := len(held) > 0
	if n.holds && !has {
		n.tally.Yield(w.address, n.seq)
		n.yields = true
	}
	n.holds = has
}

func (w *world) holders() (names []string) {
	for _, n := range w.nodes {
		if held, _ := n.tally.Held(w.now); n.alive && n.holds && len(held) > 0 {
			names = append(names, n.name)
		}
	}
	return names
}

// step lets 50 ms pass.
func (w *world) step(t *testing.T) {
	t.Helper()
	w.now = w.now.Add(50 * time.Millisecond)
	for i, v := range w.voters {
		if v != nil && !v.known && w.random.IntN(40) == 0 {
			w.setPool(i)
		}
	}
	if w.random.IntN(3) == 0 {
		late := w.late
		w.late = nil
		for _, f := range late {
			f()
		}
	}
	for i, n := range w.nodes {
		if !n.alive {
			continue
		}
		if (int(w.now.UnixMilli()/50)+3*i)%8 == 0 {
			w.tick(n)
		}
		w.look(n)
	}
	if names := w.holders(); len(names) > 1 {
		t.Fatalf("%v have the address at once", names)
	}
}

func (w *world) run(t *testing.T, d time.Duration) {
	t.Helper()
	for end := w.now.Add(d); w.now.Before(end); {
		w.step(t)
	}
}

// TestOneHolder breaks things at random for an hour of simulated time. No two nodes have the address at once, and when all is well again, one has it.
func TestOneHolder(t *testing.T) {
	for seed := range uint64(30) {
		servers := []int{1, 2, 3, 5}[seed%4]
		w := newWorld(seed, servers, 4)
		moves, before := 0, ""
		for range 240 {
			node, server := w.random.IntN(len(w.nodes)), w.random.IntN(servers)
			switch w.random.IntN(6) {
			case 0:
				w.cut[[2]int{node, server}] = true
			case 1:
				for i := range servers {
					w.cut[[2]int{node, i}] = true
				}
			case 2:
				clear(w.cut)
			case 3:
				if n := w.nodes[node]; n.alive {
					n.alive = false
				} else {
					w.start(n)
				}
			case 4:
				w.voters[server] = nil
			case 5:
				if w.voters[server] == nil {
					w.boot(server)
				}
			}
			w.run(t, time.Duration(w.random.IntN(6000))*time.Millisecond)
			if now := w.holders(); len(now) == 1 && now[0] != before {
				moves, before = moves+1, now[0]
			}
		}
		if moves < 3 { // with two servers both have to work
			t.Errorf("seed %d: the address moved only %d times", seed, moves)
		}
		clear(w.cut)
		for i := range w.voters {
			if w.voters[i] == nil {
				w.boot(i)
			}
		}
		for _, n := range w.nodes {
			if !n.alive {
				w.start(n)
			}
		}
		w.run(t, 15*time.Second)
		if len(w.holders()) != 1 {
			t.Errorf("seed %d, %d servers: nobody has the address", seed, servers)
		}
	}
}

// calm is a world without delays in which a node has the address.
func calm(t *testing.T, servers int) (w *world, holder int) {
	t.Helper()
	w = newWorld(1, servers, 3)
	w.run(t, 10*time.Second)
	names := w.holders()
	if len(names) != 1 {
		t.Fatalf("%v have the address", names)
	}
	return w, slices.Index(w.able, names[0])
}

// TestTakeOver: a node that dies, or is cut off, is replaced in three seconds, and gets nothing back when it returns.
func TestTakeOver(t *testing.T) {
	for _, servers := range []int{1, 3} {
		w, i := calm(t, servers)
		for s := range servers {
			w.cut[[2]int{i, s}] = true
		}
		w.run(t, 3500*time.Millisecond) // with messages that are late or lost in this simulation
		next := w.holders()
		if len(next) != 1 || next[0] == w.able[i] {
			t.Fatalf("%d servers: %v have the address after %s was cut off", servers, next, w.able[i])
		}
		clear(w.cut)
		w.run(t, 10*time.Second)
		if now := w.holders(); !slices.Equal(now, next) {
			t.Errorf("%d servers: %v have the address, not %v, after %s is back", servers, now, next, w.able[i])
		}
	}
}

// TestServersStop: addresses stay where they are while control planes are stopped, and when they start again.
func TestServersStop(t *testing.T) {
	for _, servers := range []int{1, 3} {
		w, i := calm(t, servers)
		clear(w.voters)
		for range 200 {
			w.step(t)
			if now := w.holders(); !slices.Equal(now, w.able[i:i+1]) {
				t.Fatalf("%d servers: %v have the address while no server runs", servers, now)
			}
		}
		for s := range servers {
			w.boot(s)
		}
		for range 200 {
			w.step(t)
			if now := w.holders(); !slices.Equal(now, w.able[i:i+1]) {
				t.Fatalf("%d servers: %v have the address after the servers started again", servers, now)
			}
		}
	}
}

// TestVIP: only healthy servers get the address of the API, whatever an agent says.
func TestVIP(t *testing.T) {
	now := time.Unix(1e9, 0)
	vip := netip.MustParseAddr("192.0.2.9")
	v := newVoter([]netip.Addr{vip}, func() time.Time { return now })
	agent, server := v.Connect("agent", false, func() {}), v.Connect("server", true, func() {})
	claim := Beat{Seq: 1, Holds: []netip.Addr{vip}, Majority: true, Healthy: true}
	if got, _ := agent.Beat(claim); len(got.Votes) > 0 {
		t.Errorf("an agent gets %v", got.Votes)
	}
	now = now.Add(Grace)
	if got, _ := server.Beat(Beat{Seq: 1, Majority: true}); len(got.Votes) > 0 {
		t.Errorf("a server without a healthy API gets %v", got.Votes)
	}
	if got, _ := server.Beat(Beat{Seq: 2, Majority: true, Healthy: true}); !slices.Equal(got.Votes, []netip.Addr{vip}) || len(got.Guarded) > 0 {
		t.Errorf("the server gets %+v", got)
	}
}

// TestGatewayVotes: only nodes that may and whose gateway serves get the address of a Gateway, with the ports that any server names.
func TestGatewayVotes(t *testing.T) {
	now := time.Unix(1e9, 0)
	a := netip.MustParseAddr("192.0.2.1")
	v := newVoter(nil, func() time.Time { return now })
	v.SetPool(map[netip.Addr][]string{a: {"server", "other"}}, map[netip.Addr][]string{a: {"80/TCP"}})
	agent, server, other := v.Connect("agent", false, func() {}), v.Connect("server", true, func() {}), v.Connect("other", true, func() {})
	now = now.Add(Grace)
	if got, _ := agent.Beat(Beat{Seq: 1, Majority: true, Gateway: true}); len(got.Votes) > 0 {
		t.Errorf("an agent gets %v", got.Votes)
	}
	if got, _ := server.Beat(Beat{Seq: 1, Majority: true}); len(got.Votes) > 0 {
		t.Errorf("a server without a gateway gets %v", got.Votes)
	}
	got, _ := server.Beat(Beat{Seq: 2, Majority: true, Gateway: true})
	if !slices.Equal(got.Votes, []netip.Addr{a}) || !slices.Equal(got.Guarded, got.Votes) {
		t.Errorf("the server gets %+v", got)
	}
	var tally Tally
	tally.SetServers([]string{"one", "two", "three"})
	tally.Count("one", got, now)
	got.Ports = map[netip.Addr][]string{a: {"443/TCP", "80/TCP"}}
	tally.Count("two", got, now)
	if ports, ok := tally.Ports(a, now); !ok || !slices.Equal(ports, []string{"443/TCP", "80/TCP"}) {
		t.Errorf("the ports are %v, %t", ports, ok)
	}
	if _, ok := tally.Ports(netip.MustParseAddr("192.0.2.2"), now); ok {
		t.Error("the address of a Service has ports")
	}
	// Its gateway has ended: it yields the address, and the next gets it.
	if got, _ := server.Beat(Beat{Seq: 3, Majority: true, Holds: []netip.Addr{a}}); len(got.Votes) > 0 {
		t.Errorf("a server whose gateway has ended keeps %v", got.Votes)
	}
	server.Beat(Beat{Seq: 4, Majority: true, Yields: []netip.Addr{a}})
	if got, _ := other.Beat(Beat{Seq: 1, Majority: true, Gateway: true}); !slices.Equal(got.Votes, []netip.Addr{a}) {
		t.Errorf("the other server gets %+v", got)
	}
}
