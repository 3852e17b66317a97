package tcpbalancer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/sockets"
)

// Pauses between tries while a client waits: short for the first 10 s, because a restart of a server is short.
const (
	eagerPause  = 10 * time.Millisecond
	eagerFor    = 10 * time.Second
	patientWait = 250 * time.Millisecond
)

// patientKeepAlive notices within 30 s that the machine of a server without a canary, the only one, is gone.
var patientKeepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}

// connect returns a connection to the best server. It waits up to Hold if there is none: a refused client would back off for longer.
func (b *Balancer) connect(ctx context.Context) (*net.TCPConn, *server, error) {
	ctx, cancel := context.WithTimeout(ctx, b.Hold)
	defer cancel()
	for {
		conn, s, err := b.try(ctx)
		if err == nil {
			b.noteReached(true)
			return conn, s, nil
		}
		wait := eagerPause
		if b.noteReached(false) > eagerFor {
			wait = patientWait
		}
		if lifecycle.Sleep(ctx, wait) != nil {
			return nil, nil, err
		}
	}
}

// noteReached notes whether a server was reached, and returns for how long none was.
func (b *Balancer) noteReached(reached bool) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case reached:
		b.unreachableSince = time.Time{}
		return 0
	case b.unreachableSince.IsZero():
		b.unreachableSince = time.Now()
	}
	return time.Since(b.unreachableSince)
}

// dialResult is the result of one dial.
type dialResult struct {
	server *server
	conn   net.Conn
	err    error
}

// try dials the servers in the order of preference: the next when one fails, or in parallel after Next. While dials are under way, it dials those that
// have failed again, one each Next: a server that starts refuses connections, and the others may be gone without a word.
func (b *Balancer) try(ctx context.Context) (*net.TCPConn, *server, error) {
	ctx, cancel := context.WithTimeout(ctx, b.Dial)
	defer cancel()
	servers := b.candidates()
	if len(servers) == 0 {
		return nil, nil, errors.New("no API server is known")
	}
	outcomes := make(chan dialResult, len(servers))
	fresh, failed := slices.Clone(servers), []*server{}
	begun, ended := 0, 0
	begin := func(queue *[]*server) {
		if len(*queue) > 0 {
			s := (*queue)[0]
			*queue = (*queue)[1:]
			begun++
			go func() {
				conn, err := (&net.Dialer{KeepAliveConfig: patientKeepAlive, Control: sockets.ControlOften}).DialContext(ctx, "tcp", s.dial)
				outcomes <- dialResult{s, conn, err}
			}()
		}
	}
	defer func() { go closeLate(outcomes, &begun, &ended) }()
	begin(&fresh)
	impatience := time.NewTicker(b.Next)
	defer impatience.Stop()
	problems := make(map[*server]error, len(servers))
	for ended < begun {
		select {
		case <-impatience.C:
			begin(&fresh)
			begin(&failed)
		case o := <-outcomes:
			ended++
			if conn, ok := o.conn.(*net.TCPConn); ok {
				b.markSlow(servers[:len(servers)-len(fresh)], o.server)
				return conn, o.server, nil
			}
			problems[o.server] = fmt.Errorf("%s: %w", o.server.address, reason(o.err))
			b.noteDialFailure(o.server, o.err)
			failed = append(failed, o.server)
			begin(&fresh)
		}
	}
	return nil, nil, errors.Join(slices.Collect(maps.Values(problems))...)
}

// markSlow makes canaries probe the servers that were dialed before the one that answered.
func (b *Balancer) markSlow(dialed []*server, answered *server) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range dialed {
		if s == answered {
			break
		}
		s.slow = s.problem == nil
	}
	b.tend()
}

// closeLate closes connections that nobody needs any more.
func closeLate(outcomes <-chan dialResult, begun, ended *int) {
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
			trueFirst(x.problem == nil && !x.slow, y.problem == nil && !y.slow),
			cmp.Compare(x.tier, y.tier),
			trueFirst(len(x.pairs) > 0, len(y.pairs) > 0),
			cmp.Compare(x.rank, y.rank))
	})
	return all
}

func trueFirst(x, y bool) int {
	switch {
	case x == y:
		return 0
	case x:
		return -1
	}
	return 1
}

// reason returns a network error without the address.
func reason(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}
