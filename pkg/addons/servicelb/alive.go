package servicelb

import (
	"context"
	"sync"
	"time"
)

// How nodes are watched for signs of life. A node is lost when a ping has no answer in time, which leaves a slow
// machine or a lost packet some. One whose connection has ended in order may just be restarting its coracle, while
// kube-proxy's rules stay in force: it gets more time.
const (
	pingEvery = 2 * time.Second
	pingLimit = 4 * time.Second
	goneLimit = 8 // pings in a row
)

// pulses know which nodes are alive, sooner than the control plane's 40 seconds. Nodes that never had a connection to
// this server are not judged: it may be us.
type pulses struct {
	ping         func(ctx context.Context, node string) error
	noConnection func(error) bool
	changed      func() // tells that lost says something else now

	mu    sync.Mutex
	nodes map[string]*pulse
	stop  context.CancelFunc // of the goroutine; nil if there is none
}

// pulse is what is known of one node.
type pulse struct {
	seen   bool // it has or had a connection
	silent bool // the last ping had no answer
	gone   int  // pings in a row for which there was no connection
	busy   bool // one is under way
}

func (p *pulse) lost() bool { return p.silent || p.seen && p.gone >= goneLimit }

// lost are the nodes that give no sign of life.
func (ps *pulses) lost() map[string]bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	out := map[string]bool{}
	for name, p := range ps.nodes {
		if p.lost() {
			out[name] = true
		}
	}
	return out
}

// follow sets the nodes to watch. Without any, nothing runs.
func (ps *pulses) follow(ctx context.Context, names []string) {
	if ps.ping == nil {
		return
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	nodes := map[string]*pulse{}
	for _, n := range names {
		if nodes[n] = ps.nodes[n]; nodes[n] == nil {
			nodes[n] = &pulse{}
		}
	}
	ps.nodes = nodes
	switch {
	case len(nodes) == 0 && ps.stop != nil:
		ps.stop()
		ps.stop = nil
	case len(nodes) > 0 && ps.stop == nil:
		ctx, ps.stop = context.WithCancel(ctx)
		go ps.run(ctx)
	}
}

func (ps *pulses) run(ctx context.Context) {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		ps.round(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// round pings all nodes, side by side, and does not wait for them.
func (ps *pulses) round(ctx context.Context) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for name, p := range ps.nodes {
		if p.busy {
			continue
		}
		p.busy = true
		go func() {
			limited, cancel := context.WithTimeout(ctx, pingLimit)
			defer cancel()
			ps.note(p, ps.ping(limited, name))
		}()
	}
}

// note enters the result of a ping.
func (ps *pulses) note(p *pulse, err error) {
	ps.mu.Lock()
	was := p.lost()
	p.busy = false
	switch {
	case err == nil:
		p.seen, p.silent, p.gone = true, false, 0
	case ps.noConnection != nil && ps.noConnection(err):
		p.gone++
	default:
		p.seen, p.silent = true, true
	}
	changed := was != p.lost()
	ps.mu.Unlock()
	if changed {
		ps.changed()
	}
}
