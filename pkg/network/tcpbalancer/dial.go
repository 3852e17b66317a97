package tcpbalancer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// How often servers are tried for a client that waits: often in the first seconds, because a start is short.
const (
	eagerPause  = 10 * time.Millisecond
	eagerFor    = 10 * time.Second
	patientWait = 250 * time.Millisecond
)

// patientKeepAlive notices within half a minute that a server has vanished which nobody watches because it is the only one.
var patientKeepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}

// connect returns a connection to the best server there is. A client has to wait if there is none: it is better off
// than with a refusal, after which it would wait longer of its own accord.
func (b *Balancer) connect(ctx context.Context) (*net.TCPConn, *server, error) {
	ctx, cancel := context.WithTimeout(ctx, b.Hold)
	defer cancel()
	for {
		conn, s, err := b.try(ctx)
		if err == nil {
			b.lost(false)
			return conn, s, nil
		}
		wait := eagerPause
		if b.lost(true) > eagerFor {
			wait = patientWait
		}
		if lifecycle.Sleep(ctx, wait) != nil {
			return nil, nil, err
		}
	}
}

// lost notes whether a server was reached and returns for how long none was.
func (b *Balancer) lost(lost bool) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !lost:
		b.lostWhen = time.Time{}
		return 0
	case b.lostWhen.IsZero():
		b.lostWhen = time.Now()
	}
	return time.Since(b.lostWhen)
}

// dialled is the outcome of one connection.
type dialled struct {
	server *server
	conn   net.Conn
	err    error
}

// try dials the servers in the order of preference: the next when one refuses, and beside one that takes long.
func (b *Balancer) try(ctx context.Context) (*net.TCPConn, *server, error) {
	ctx, cancel := context.WithTimeout(ctx, b.Dial)
	defer cancel()
	servers := b.candidates()
	if len(servers) == 0 {
		return nil, nil, errors.New("no server is known")
	}
	outcomes := make(chan dialled, len(servers))
	begun, ended := 0, 0
	begin := func() {
		if begun < len(servers) {
			s := servers[begun]
			begun++
			go func() {
				conn, err := (&net.Dialer{KeepAliveConfig: patientKeepAlive}).DialContext(ctx, "tcp", s.dial)
				outcomes <- dialled{s, conn, err}
			}()
		}
	}
	defer func() { go closeLate(outcomes, &begun, &ended) }()
	begin()
	impatience := time.NewTicker(b.Next)
	defer impatience.Stop()
	var problems []error
	for ended < len(servers) {
		select {
		case <-impatience.C:
			begin()
		case o := <-outcomes:
			ended++
			if conn, ok := o.conn.(*net.TCPConn); ok {
				b.doubt(servers[:begun], o.server)
				return conn, o.server, nil
			}
			problems = append(problems, fmt.Errorf("%s: %w", o.server.address, reason(o.err)))
			b.suspect(o.server, o.err)
			begin()
		}
	}
	return nil, nil, errors.Join(problems...)
}

// doubt has those looked at that were dialled before the one that answered.
func (b *Balancer) doubt(dialled []*server, answered *server) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range dialled {
		if s == answered {
			break
		}
		s.doubt = s.problem == nil
	}
	b.tend()
}

// closeLate closes connections that nobody needs any more.
func closeLate(outcomes <-chan dialled, begun, ended *int) {
	for ; *ended < *begun; *ended++ {
		if o := <-outcomes; o.conn != nil {
			_ = o.conn.Close()
		}
	}
}

// candidates are the servers, best first: those that are well before others, then by tier, then those that have
// connections already, because each server in use is one to watch.
func (b *Balancer) candidates() []*server {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := slices.Clone(b.servers)
	slices.SortStableFunc(all, func(x, y *server) int {
		return cmp.Or(
			first(x.problem == nil && !x.doubt, y.problem == nil && !y.doubt),
			cmp.Compare(x.tier, y.tier),
			first(len(x.pairs) > 0, len(y.pairs) > 0),
			cmp.Compare(x.rank, y.rank))
	})
	return all
}

func first(x, y bool) int {
	switch {
	case x == y:
		return 0
	case x:
		return -1
	}
	return 1
}

// reason is the part of a network error that the address does not repeat.
func reason(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}
