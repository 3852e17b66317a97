// Package announcer gives this node the addresses for which the servers vote for it (package addressvote): those of load balancers' pools, and, on a
// server, that of the API. It is a component of the node.
//
// The addresses are on an interface, so the kernel answers ARP requests and neighbour solicitations for them. They are there for a few
// seconds only and renewed as long as the votes are valid: when this process is killed or hangs, the kernel removes them. Nothing is left
// for a reset to remove but the nft table that keeps clients of a pool's addresses from the node's own processes.
package announcer

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/network/addressvote"
	"github.com/coracle-dev/coracle/pkg/network/gateway"
	"github.com/coracle-dev/coracle/pkg/network/tcpbalancer"
)

// Announcer is the component.
type Announcer struct {
	Path          string // of the request to servers
	Starting      string // header in the answers of a server that serves no path yet
	CA, Cert, Key string // files: the CA of servers, and the client certificate of the node
	// Servers returns the API servers of the balancer, and a channel that is closed at the next change.
	Servers func() ([]tcpbalancer.Server, <-chan struct{})
	// OwnDial is the address at which this machine's own server is dialed, "" on agents.
	OwnDial string
	Node    *kube.OwnNode
	// IPs are the node's own addresses. An address outside of all networks of the machine goes to their interface.
	IPs []netip.Addr
	// VIPs are the addresses of the API, and APIPort its port; of servers only.
	VIPs    []netip.Addr
	APIPort uint16
	// Gateway is the directory of this machine's gateway, "" if it has none.
	Gateway gateway.Dir
}

// Run announces addresses until ctx is done. It is ready at once, and does nothing while there is nothing to announce.
func (a Announcer) Run(ctx context.Context, ready func()) error {
	ready()
	log := logrus.WithField("component", "announcer")
	clearTable(log) // of a former configuration
	for a.await(ctx, true) {
		r := &running{Announcer: a, log: log, answers: make(chan answer), found: make(chan finding), peers: map[string]*peer{}, has: map[netip.Addr]*placed{}, refuses: map[netip.Addr]time.Time{}}
		wanted, stop := context.WithCancel(ctx)
		go func() {
			a.await(wanted, false)
			stop()
		}()
		r.run(wanted)
		stop()
	}
	return nil
}

// await waits until there is something to announce, or nothing any more. It returns false when ctx is done.
func (a Announcer) await(ctx context.Context, something bool) bool {
	for {
		node, changed := a.Node.Get()
		wanted := len(a.VIPs) > 0 || node != nil && node.Annotations[kube.AnnouncesAnnotation] != ""
		if wanted == something && (node != nil || len(a.VIPs) > 0) {
			return ctx.Err() == nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// running is the state of an Announcer while there is something to announce. One goroutine runs it.
type running struct {
	Announcer
	log     logrus.FieldLogger
	tally   addressvote.Tally
	answers chan answer
	peers   map[string]*peer
	tasks   sync.WaitGroup
	seq     uint64
	sent    map[uint64]time.Time // when the last Beats were sent
	yields  []netip.Addr
	has     map[netip.Addr]*placed
	refuses map[netip.Addr]time.Time // addresses that cannot be announced, until when it is not tried again
	guard   guard
	health  health // of the API server
	gateway health
	lonely  time.Time // since when too few servers answer; zero if enough do
	warned  bool      // that they do not
	probing bool      // a look for other machines that have an address is under way
	found   chan finding
}

// answer is what a server answers; refused says that the server does not run.
type answer struct {
	server  string
	ballot  addressvote.Ballot
	refused bool
	at      time.Time // of a refusal: when the connection was tried
}

// look is how often votes are checked for their end.
const look = 100 * time.Millisecond

func (r *running) run(ctx context.Context) {
	r.sent = map[uint64]time.Time{}
	r.guard.written = make(chan error, 1)
	for address, at := range leftovers() {
		r.has[address] = &placed{place: at, since: time.Now(), adopted: true}
	}
	peers, disconnect := context.WithCancel(context.WithoutCancel(ctx))
	defer r.tasks.Wait()
	defer disconnect()
	if len(r.VIPs) > 0 {
		r.tasks.Go(func() { r.health.follow(peers, r.Announcer) })
	}
	if r.Gateway != "" {
		r.gateway.check(ctx, true, r.Gateway.Alive) // before the first Beat, which decides about what this process had before
		r.tasks.Go(func() { r.gateway.repeat(peers, true, r.Gateway.Alive) })
	}
	lost := make(chan struct{}, 1)
	r.tasks.Go(func() { r.watchGuard(peers, lost) })
	beat, tick := time.NewTicker(addressvote.Interval), time.NewTicker(look)
	defer beat.Stop()
	defer tick.Stop()
	for first := true; ; first = false {
		servers, changed := r.Servers()
		r.follow(peers, servers)
		if first {
			r.beat(false)
		}
		for again := true; again; {
			select {
			case a := <-r.answers:
				r.count(a)
			case f := <-r.found:
				r.judge(peers, f)
			case <-tick.C:
			case err := <-r.guard.written:
				r.guard.ended(ctx, r.log, err)
				r.guard.lost() // meanwhile
			case <-lost:
				r.guard.lost()
			case <-beat.C:
				r.beat(false)
				r.renew()
				r.probe(peers)
			case <-changed:
				again = false
			case <-ctx.Done():
				r.leave()
				return
			}
			r.apply(ctx)
		}
	}
}

// follow keeps a connection to each server of the cluster's list; as long as there is no list, to those by which the node joined.
func (r *running) follow(ctx context.Context, servers []tcpbalancer.Server) {
	listed := slices.DeleteFunc(slices.Clone(servers), func(s tcpbalancer.Server) bool { return s.Fallback })
	if len(listed) == 0 {
		return
	}
	var names []string
	for _, s := range listed {
		names = append(names, s.Address)
		if r.peers[s.Address] != nil {
			continue
		}
		dial := s.Address
		if s.Own {
			dial = r.OwnDial
		}
		ctx, stop := context.WithCancel(ctx)
		p := &peer{Announcer: r.Announcer, name: s.Address, dial: dial, beats: make(chan addressvote.Beat, 1), answers: r.answers, stop: stop}
		r.peers[s.Address] = p
		r.tasks.Go(func() { p.run(ctx) })
	}
	for name, p := range r.peers {
		if !slices.Contains(names, name) {
			p.stop()
			delete(r.peers, name)
		}
	}
	r.tally.SetServers(names)
}

// patient is how long too few servers answer before the log says so.
const patient = 10 * time.Second

// majority reports whether enough servers answer, and warns if they do not for long.
func (r *running) majority(now time.Time) bool {
	if r.tally.Majority(now) {
		r.lonely, r.warned = time.Time{}, false
		return true
	}
	if r.lonely.IsZero() {
		r.lonely = now
	}
	if now.Sub(r.lonely) > patient && !r.warned {
		r.warned = true
		silent := slices.DeleteFunc(slices.Sorted(maps.Keys(r.peers)), func(name string) bool { return r.tally.Answers(name, now) })
		r.log.Warnf("this node announces nothing, because too few of the servers answer it; those that do not: %s", strings.Join(silent, ", "))
	}
	return false
}

// beat sends a Beat to all servers.
func (r *running) beat(leaving bool) {
	now := time.Now()
	r.seq++
	r.sent[r.seq] = now
	maps.DeleteFunc(r.refuses, func(_ netip.Addr, until time.Time) bool { return now.After(until) })
	maps.DeleteFunc(r.sent, func(_ uint64, at time.Time) bool { return now.Sub(at) > addressvote.Term })
	b := addressvote.Beat{
		Seq: r.seq, Holds: slices.SortedFunc(maps.Keys(r.has), netip.Addr.Compare), Yields: r.yields,
		Refuses:  slices.SortedFunc(maps.Keys(r.refuses), netip.Addr.Compare),
		Majority: r.majority(now), Healthy: len(r.peers) == 1 || r.health.good(now), Gateway: r.gateway.good(now), Leaving: leaving,
	}
	r.yields = nil
	for _, p := range r.peers {
		p.send(b)
	}
}

// count counts an answer.
func (r *running) count(a answer) {
	if a.refused {
		r.tally.Keep(a.server, a.at)
		return
	}
	if sent, known := r.sent[a.ballot.Seq]; known {
		r.tally.Count(a.server, a.ballot, sent)
	}
}

// leaveTimeout is how long a stop waits until the servers know that the addresses are free.
const leaveTimeout = 300 * time.Millisecond

// leave gives up all addresses and tells the servers, so that other nodes take over at once.
func (r *running) leave() {
	for address, p := range r.has {
		r.remove(address, p, "this node stops, or there is nothing to announce any more")
	}
	r.beat(true)
	r.clear()
	after := time.After(leaveTimeout)
	for told := 0; told < len(r.peers); {
		select {
		case a := <-r.answers:
			if a.refused || a.ballot.Seq == r.seq {
				told++
			}
		case <-after:
			return
		}
	}
}
