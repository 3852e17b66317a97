// Package tcpbalancer hands TCP connections of this machine on to one of the cluster's API servers, which it watches.
//
// The bytes are not looked at: TLS goes from end to end. With one server there is nothing to choose, and nothing is
// watched. With more, every server that has connections is asked in intervals whether it is well; when it is not, its
// connections are closed, so that clients dial again and come out at another one.
//
// It links no Kubernetes. Where the list of servers comes from is package pkg/network/apibalancer's business.
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

// Options say what a Balancer begins with. Addresses are HOST:PORT.
type Options struct {
	// Own is this machine's own server, preferred to all others: the address that the cluster is told, and the one
	// under which it is reached from here. Both are empty if there is none.
	Own, OwnDial string
	// Listed are the cluster's servers as far as they are known; Set replaces them.
	Listed []string
	// Fallback are addresses to try when all others fail: names by which servers were reached before.
	Fallback []string
	// TLS returns how servers are asked for /readyz. Nil asks without TLS.
	TLS func() (*tls.Config, error)
	// Log takes what an operator would want to know. Nil is logrus' standard logger.
	Log logrus.FieldLogger
	// Timing is for tests. Zero is the product's.
	Timing Timing
}

// Timing is how long things take.
type Timing struct {
	Interval time.Duration // between two questions to a server in use, and to one that is not well
	Answer   time.Duration // how long an answer may take
	Dial     time.Duration // how long a connection may take
	Next     time.Duration // after which another server is tried beside one that does not answer yet
	Hold     time.Duration // how long a client is kept waiting for any server
}

// product is what a Timing that is not given is: a server that has vanished is left after three seconds, by the
// canary's keep-alive, and one that is frozen after eight at most.
var product = Timing{
	Interval: 4 * time.Second, Answer: 2 * time.Second, Dial: 3 * time.Second, Next: 300 * time.Millisecond, Hold: 5 * time.Second,
}

// Balancer is made by New.
type Balancer struct {
	tls func() (*tls.Config, error)
	log logrus.FieldLogger
	Timing

	mu       sync.Mutex
	ctx      context.Context // of Serve
	servers  []*server
	changed  chan struct{} // closed at the next change
	tasks    sync.WaitGroup
	lostWhen time.Time // when the last client failed to reach any server; zero if the last one succeeded
}

// server is one API server. Its fields are guarded by the Balancer's lock, but for the first two.
type server struct {
	address, dial string
	tier          tier
	rank          uint64 // decides between servers that are alike
	problem       error  // why it is not well; nil if it is, or if nobody knows yet
	since         time.Time
	pairs         map[*pair]struct{}
	doubt         bool // it was slow: a canary has to look
	watched       bool // a canary runs
}

// tier says how much a server is preferred.
type tier int

const (
	own tier = iota
	listed
	fallback // not among the cluster's servers any more, or a name of one of them
)

// maxFallbacks is how many servers are remembered that have left the list.
const maxFallbacks = 8

// New returns a balancer that knows its servers and does nothing yet.
func New(o Options) *Balancer {
	if o.Log == nil {
		o.Log = logrus.StandardLogger()
	}
	if o.Timing == (Timing{}) {
		o.Timing = product
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

// Set replaces the list of the cluster's servers. Connections to one that is not in it any more are closed; it is
// remembered as something to fall back on. An empty list is ignored: a cluster without servers could not say so.
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

// forgetOldest keeps the list of servers to fall back on short.
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

// Serve takes connections until ctx is done. It returns when all of them are closed.
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
			_ = lifecycle.Sleep(ctx, 100*time.Millisecond) // no file descriptors left, perhaps
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

// serve finds a server for a client and carries the bytes.
func (b *Balancer) serve(ctx context.Context, client *net.TCPConn) {
	defer client.Close()
	conn, s, err := b.connect(ctx)
	if err != nil {
		b.log.WithError(err).Debug("no server for a connection")
		return
	}
	p := &pair{client: client, server: conn}
	if !b.enter(s, p) {
		p.close()
		return
	}
	p.carry()
	b.leave(s, p)
}

// enter counts a connection, unless all is being closed.
func (b *Balancer) enter(s *server, p *pair) bool {
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

func (b *Balancer) leave(s *server, p *pair) {
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

// notify wakes those who follow Snapshot.
func (b *Balancer) notify() {
	close(b.changed)
	b.changed = make(chan struct{})
}

func temporary(err error) bool {
	var network net.Error
	return !errors.Is(err, net.ErrClosed) && errors.As(err, &network)
}
