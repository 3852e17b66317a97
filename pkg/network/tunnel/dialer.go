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
	// Addresses are the node's own. A tunnel from another address comes through a NAT.
	Addresses []string
}

// Dialer connects from a server to addresses of the cluster: directly, or through the tunnel of the node that has the address.
type Dialer struct {
	Hub *Hub
	// Self is the server's own node, which needs no tunnel.
	Self string
	// Owner returns the node of an address; ok is false if no node has it.
	Owner func(host string) (o Owner, ok bool)
	// Direct dials without a tunnel. Nil is net.Dialer.
	Direct func(ctx context.Context, network, address string) (net.Conn, error)

	ahead  time.Duration // instead of headStart, unless it is 0
	mu     sync.Mutex
	failed map[string]time.Time // by node: when dialling it directly failed last
}

// Timing of the two ways, direct and through the tunnel.
const (
	headStart     = 150 * time.Millisecond // of the preferred way, before the other is tried as well
	failureTTL    = time.Minute            // how long a failed direct dial is remembered
	directTimeout = 30 * time.Second       // as the API server has without a tunnel
	lastChance    = time.Second            // for the direct way after the node refused
	lostTimeout   = 10 * time.Second       // for a node without a tunnel
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
		if errors.As(err, &refused) { // the direct way would hardly work, and may hang
			time.AfterFunc(lastChance, giveUp)
		}
		return conn, err
	}
	from, ok := d.Hub.From(owner.Node)
	switch {
	case !ok:
		return d.dialLost(ctx, owner.Node, address, direct, tunnelled)
	case !owner.hasAddress(from): // behind a NAT the node's address may be another machine's here
		conn, throughErr, directErr := race(ctx, cmp.Or(d.ahead, headStart), tunnelled, direct)
		return conn, explain(owner, address, directErr, throughErr)
	}
	start := cmp.Or(d.ahead, headStart)
	if d.failedRecently(owner.Node) {
		start = 0
	}
	conn, directErr, throughErr := race(ctx, start, direct, tunnelled)
	if directErr != nil {
		d.noteFailure(owner.Node)
	}
	return conn, explain(owner, address, directErr, throughErr)
}

// dialLost dials a node that has no tunnel: directly, and through its tunnel if it connects meanwhile, as after a start of the server.
func (d *Dialer) dialLost(ctx context.Context, node, address string, direct, tunnelled dialFunc) (net.Conn, error) {
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
			if err := d.Hub.awaitSession(ctx, node, failed); err != nil {
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

// hasAddress reports whether a connection comes from an address of the node itself.
func (o Owner) hasAddress(from net.Addr) bool {
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

// explain returns one error of the two, or nil if one of the ways worked.
func explain(o Owner, address string, direct, through error) error {
	if direct == nil || through == nil {
		return nil
	}
	return fmt.Errorf("%s is not reached through the tunnel of node %s (%w), and does not answer directly: %w", address, o.Node, through, direct)
}

func (d *Dialer) failedRecently(node string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	when, ok := d.failed[node]
	if ok && time.Since(when) > failureTTL {
		delete(d.failed, node)
		ok = false
	}
	return ok
}

// noteFailure remembers that a node does not answer directly.
func (d *Dialer) noteFailure(node string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failed == nil {
		d.failed = map[string]time.Time{}
	}
	d.failed[node] = time.Now()
}

// errLate is the error of the way that had no result when the other one succeeded.
var errLate = errors.New("it took too long")

// dialFunc is one way to connect.
type dialFunc func(context.Context) (net.Conn, error)

// race dials in two ways, and returns the first connection. The second way begins when the first fails, or after start. A nil error
// means that the way succeeded or was not needed; without a connection both errors are set.
func race(ctx context.Context, start time.Duration, first, second dialFunc) (conn net.Conn, firstErr, secondErr error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type outcome struct {
		conn net.Conn
		err  error
	}
	begin := func(dial dialFunc) <-chan outcome {
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
