package tunnel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Owner is the node that an address belongs to.
type Owner struct {
	Node string
	// Addresses are the node's own, by which it is seen whether its tunnel comes from another one: through a NAT.
	Addresses []string
}

// Dialer reaches addresses of the cluster from a server: directly if that works, else through the tunnel of the node
// that has the address.
type Dialer struct {
	Hub *Hub
	// Self is the server's own node, which needs no tunnel.
	Self string
	// Owner says whose an address is; ok is false if it is no node's.
	Owner func(host string) (o Owner, ok bool)
	// Direct dials without a tunnel. Nil is the network.
	Direct func(ctx context.Context, network, address string) (net.Conn, error)

	ahead  time.Duration // instead of headStart, unless it is 0
	mu     sync.Mutex
	failed map[string]time.Time // by node: when dialling it directly failed last
}

// How the two ways compete.
const (
	headStart     = 150 * time.Millisecond // of the way that is preferred
	remembered    = time.Minute            // how long a failure of the direct way is
	directTimeout = 30 * time.Second       // as without us
	lastChance    = time.Second            // of the direct way when the node itself has said no
	lostTimeout   = 10 * time.Second       // of a node that has no tunnel although every node makes one
)

// DialContext connects to HOST:PORT. Its error says which ways were tried.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, directTimeout)
	defer cancel()
	direct := func(ctx context.Context) (net.Conn, error) { return d.direct(ctx, network, address) }
	owner, ok := d.Owner(host)
	if !ok || owner.Node == d.Self {
		return direct(ctx)
	}
	ctx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	tunnelled := func(ctx context.Context) (net.Conn, error) {
		conn, err := d.Hub.Dial(ctx, owner.Node, address)
		var refused *RefusedError
		if errors.As(err, &refused) { // the node knows best; the direct way may hang
			time.AfterFunc(lastChance, giveUp)
		}
		return conn, err
	}
	from, ok := d.Hub.From(owner.Node)
	switch {
	case !ok:
		return d.dialLost(ctx, owner.Node, address, direct, tunnelled)
	case !owner.has(from): // behind a NAT the node's address may be another machine's here
		conn, throughErr, directErr := race(ctx, cmp.Or(d.ahead, headStart), tunnelled, direct)
		return conn, explain(owner, address, directErr, throughErr)
	}
	start := cmp.Or(d.ahead, headStart)
	if d.failedLately(owner.Node) {
		start = 0
	}
	conn, directErr, throughErr := race(ctx, start, direct, tunnelled)
	if directErr != nil {
		d.note(owner.Node)
	}
	return conn, explain(owner, address, directErr, throughErr)
}

// dialLost dials a node that has no tunnel: directly, and through a tunnel if it comes meanwhile, as it does a moment
// after a start.
func (d *Dialer) dialLost(ctx context.Context, node, address string, direct, tunnelled way) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, lostTimeout)
	defer cancel()
	failed := make(chan struct{})
	conn, directErr, throughErr := race(ctx, 0,
		func(ctx context.Context) (net.Conn, error) {
			conn, err := direct(ctx)
			if err != nil {
				close(failed)
			}
			return conn, err
		},
		func(ctx context.Context) (net.Conn, error) {
			if err := d.Hub.await(ctx, node, failed); err != nil {
				return nil, err
			}
			return tunnelled(ctx)
		})
	switch {
	case conn != nil:
		return conn, nil
	case errors.Is(throughErr, ErrNoTunnel):
		return nil, fmt.Errorf("node %s has no tunnel to this server, and %s does not answer directly: %w", node, address, directErr)
	}
	return nil, explain(Owner{Node: node}, address, directErr, throughErr)
}

func (d *Dialer) direct(ctx context.Context, network, address string) (net.Conn, error) {
	if d.Direct != nil {
		return d.Direct(ctx, network, address)
	}
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// has reports whether the owner itself has the address that a connection comes from.
func (o Owner) has(from net.Addr) bool {
	tcp, ok := from.(*net.TCPAddr)
	if !ok {
		return false
	}
	for _, a := range o.Addresses {
		if ip := net.ParseIP(a); ip != nil && ip.Equal(tcp.IP) {
			return true
		}
	}
	return false
}

// explain makes one error of two if neither way worked.
func explain(o Owner, address string, direct, through error) error {
	if direct == nil || through == nil {
		return nil
	}
	return fmt.Errorf("%s is not reached through the tunnel of node %s (%w), and does not answer directly: %w", address, o.Node, through, direct)
}

func (d *Dialer) failedLately(node string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	when, ok := d.failed[node]
	if ok && time.Since(when) > remembered {
		delete(d.failed, node)
		ok = false
	}
	return ok
}

// note remembers that a node does not answer directly.
func (d *Dialer) note(node string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failed == nil {
		d.failed = map[string]time.Time{}
	}
	d.failed[node] = time.Now()
}

// errLate is a way that had not worked when the other one did.
var errLate = errors.New("it took too long")

// way is a way to connect.
type way func(context.Context) (net.Conn, error)

// race tries two ways to connect; the second begins when the first fails or its start is over. The first connection
// is used. A way that has no error worked, or was not needed; both have one if there is no connection.
func race(ctx context.Context, start time.Duration, first, second way) (conn net.Conn, firstErr, secondErr error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type outcome struct {
		conn net.Conn
		err  error
	}
	begin := func(dial way) <-chan outcome {
		out := make(chan outcome, 1)
		go func() {
			conn, err := dial(ctx)
			out <- outcome{conn, err}
		}()
		return out
	}
	discard := func(late <-chan outcome) {
		if late != nil {
			go func() {
				if o := <-late; o.conn != nil {
					_ = o.conn.Close()
				}
			}()
		}
	}
	one := begin(first)
	var two <-chan outcome
	timer := time.NewTimer(start)
	defer timer.Stop()
	for {
		select {
		case o := <-one:
			if o.err == nil {
				discard(two)
				return o.conn, nil, nil
			}
			firstErr, one = o.err, nil
			if secondErr != nil {
				return nil, firstErr, secondErr
			}
		case o := <-two:
			if o.err == nil {
				discard(one)
				if firstErr == nil {
					firstErr = errLate
				}
				return o.conn, firstErr, nil
			}
			secondErr, two = o.err, nil
			if firstErr != nil {
				return nil, firstErr, secondErr
			}
			continue
		case <-timer.C:
		}
		if two == nil && secondErr == nil {
			two = begin(second)
		}
	}
}
