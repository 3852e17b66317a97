// Package tcpbalancer forwards TCP connections of this machine to one of the cluster's API servers, and checks their health.
//
// It does not terminate TLS. A single server is not checked, as there is no choice. With more, a canary probes every server that has
// connections; when a server is unhealthy its connections are closed, so that clients dial again and get another one.
//
// The package links no Kubernetes. Package apibalancer keeps the list of servers.
package tcpbalancer

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// Options are the initial servers and the settings of a Balancer. Addresses are HOST:PORT.
type Options struct {
	// Own is this machine's own server, which is preferred to all others, by the address in the cluster's list. OwnDial is the address
	// to dial it at. Both are empty if there is none.
	Own, OwnDial string
	// Listed are the known servers of the cluster; Set replaces them.
	Listed []string
	// Fallback are addresses to try when all others fail, such as names by which servers were reached before.
	Fallback []string
	// TLS returns the configuration for probes of /readyz. Nil probes without TLS.
	TLS func() (*tls.Config, error)
	// Log is the logger. Nil is logrus' standard logger.
	Log logrus.FieldLogger
	// Timing is for tests. The zero value is defaultTiming.
	Timing Timing
}

// Timing has intervals and timeouts.
type Timing struct {
	Interval time.Duration // between two probes of a server
	Answer   time.Duration // timeout of a probe
	Dial     time.Duration // timeout of a connection
	Next     time.Duration // after which the next server is dialed while one has not answered yet
	Hold     time.Duration // how long a client waits for any server
}

// defaultTiming leaves a server whose machine is gone after maxSilence, and a frozen one after at most 8 s.
var defaultTiming = Timing{
	Interval: 4 * time.Second, Answer: 2 * time.Second, Dial: 3 * time.Second, Next: 300 * time.Millisecond, Hold: 5 * time.Second,
}

// Balancer is made by New.
type Balancer struct {
	tls func() (*tls.Config, error)
	log logrus.FieldLogger
	Timing

	mu               sync.Mutex
	ctx              context.Context // of Serve
	servers          []*server
	changed          chan struct{} // closed at the next change
	tasks            sync.WaitGroup
	unreachableSince time.Time // since when no client reached any server; zero if the last one did
}

// server is one API server. The Balancer's mu guards all fields but the first two.
type server struct {
	address, dial string
	tier          tier
	rank          uint64 // random order among equal servers
	problem       error  // why it is unhealthy; nil if it is healthy or not probed yet
	since         time.Time
	pairs         map[*pair]struct{}
	slow          bool // it was slow to connect: a canary has to probe it
	watched       bool // whether a canary runs
}

// tier is the preference of a server; lower is better.
type tier int

const (
	own tier = iota
	listed
	fallback // was removed from the list, or is another name of a server
)

// maxFallbacks is how many removed servers are kept.
const maxFallbacks = 8

// New returns a balancer; Serve starts it.
func New(o Options) *Balancer {
	if o.Log == nil {
		o.Log = logrus.StandardLogger()
	}
	if o.Timing == (Timing{}) {
		o.Timing = defaultTiming
	}
	b := &Balancer{tls: o.TLS, log: o.Log, Timing: o.Timing, ctx: context.Background(), changed: make(chan struct{})}
	if o.Own != "" {
		b.servers = append(b.servers, newServer(o.Own, o.OwnDial, own))
	}
	b.Set(o.Listed)
	for _, address := range o.Fallback {
		if b.find(address) == nil {
			b.servers = append(b.servers, newServer(address, address, fallback))
		}
	}
	return b
}

func newServer(address, dial string, t tier) *server {
	return &server{address: address, dial: dial, tier: t, rank: rand.Uint64(), since: time.Now(), pairs: map[*pair]struct{}{}}
}

func (b *Balancer) find(address string) *server {
	for _, s := range b.servers {
		if s.address == address {
			return s
		}
	}
	return nil
}

// Set replaces the list of the cluster's servers. Connections to removed servers are closed; removed servers become fallbacks. An empty
// list is ignored, as it must be a mistake.
func (b *Balancer) Set(addresses []string) {
	if len(addresses) == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	changed := false
	for _, s := range b.servers {
		switch in := slices.Contains(addresses, s.address); {
		case s.tier == listed && !in:
			s.tier, changed = fallback, true
			s.closePairs()
		case s.tier == fallback && in:
			s.tier, changed = listed, true
		}
	}
	for _, address := range addresses {
		if b.find(address) == nil {
			b.servers = append(b.servers, newServer(address, address, listed))
			changed = true
		}
	}
	if changed {
		b.forgetOldest()
		b.notify()
		b.tend()
	}
}

// forgetOldest removes the oldest fallbacks above maxFallbacks.
func (b *Balancer) forgetOldest() {
	n := 0
	for _, s := range b.servers {
		if s.tier == fallback {
			n++
		}
	}
	b.servers = slices.DeleteFunc(b.servers, func(s *server) bool {
		if s.tier != fallback || n <= maxFallbacks {
			return false
		}
		n--
		s.closePairs()
		return true
	})
}

// Serve accepts connections until ctx is done. It returns when all of them are closed.
func (b *Balancer) Serve(ctx context.Context, listener net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b.mu.Lock()
	b.ctx = ctx
	b.mu.Unlock()
	stop := context.AfterFunc(ctx, func() {
		_ = listener.Close()
		b.closeAll()
	})
	defer stop()
	for {
		conn, err := listener.Accept()
		if ctx.Err() != nil {
			b.tasks.Wait()
			return nil
		}
		if err != nil {
			if !temporary(err) {
				cancel()
				b.tasks.Wait()
				return err
			}
			_ = lifecycle.Sleep(ctx, 100*time.Millisecond) // perhaps out of file descriptors
			continue
		}
		client, ok := conn.(*net.TCPConn)
		if !ok {
			_ = conn.Close()
			continue
		}
		b.tasks.Go(func() { b.serve(ctx, client) })
	}
}

// serve connects a client to a server and copies data between them.
func (b *Balancer) serve(ctx context.Context, client *net.TCPConn) {
	defer client.Close()
	conn, s, err := b.connect(ctx)
	if err != nil {
		b.log.WithError(err).Debug("no server for a connection")
		return
	}
	p := &pair{client: client, server: conn}
	if !b.addPair(s, p) {
		p.close()
		return
	}
	p.carry()
	b.removePair(s, p)
}

// addPair adds a connection to a server. It returns false if the balancer is stopping.
func (b *Balancer) addPair(s *server, p *pair) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx.Err() != nil {
		return false
	}
	s.pairs[p] = struct{}{}
	if len(s.pairs) == 1 {
		b.notify()
		b.tend()
	}
	return true
}

func (b *Balancer) removePair(s *server, p *pair) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(s.pairs, p)
	if len(s.pairs) == 0 {
		b.notify()
	}
}

func (b *Balancer) closeAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.servers {
		s.closePairs()
	}
}

func (s *server) closePairs() {
	for p := range s.pairs {
		p.close()
	}
}

// notify closes the channel that Snapshot returned.
func (b *Balancer) notify() {
	close(b.changed)
	b.changed = make(chan struct{})
}

func temporary(err error) bool {
	var network net.Error
	return !errors.Is(err, net.ErrClosed) && errors.As(err, &network)
}
