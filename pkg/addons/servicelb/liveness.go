package servicelb

import (
	"context"
	"sync"
	"time"
)

// How nodes are pinged. A node is lost when a ping has no answer in time; the timeout allows for a slow machine or a lost
// packet. A node that closed its connection cleanly may only be restarting coracle, while kube-proxy's rules stay
// in force, so it gets more time.
const (
	pingInterval = 2 * time.Second
	pingTimeout  = 4 * time.Second
	maxMissing   = 8 // consecutive pings without a connection
)

// liveness finds out which nodes are lost, sooner than the control plane, which takes 40 seconds. A node that never had a
// connection to this server is not lost, because the fault may be on this side.
type liveness struct {
	ping         func(ctx context.Context, node string) error
	noConnection func(error) bool
	changed      func() // called when the result of lost changes

	mu    sync.Mutex
	nodes map[string]*nodeLiveness
	stop  context.CancelFunc // of the goroutine; nil if there is none
}

// nodeLiveness is the state of one node.
type nodeLiveness struct {
	everConnected bool // it has or had a connection
	unanswered    bool // the last ping had no answer
	missedPings   int  // consecutive pings without a connection
	busy          bool // a ping is in flight
}

func (p *nodeLiveness) lost() bool {
	return p.unanswered || p.everConnected && p.missedPings >= maxMissing
}

// lost returns the nodes that are lost.
func (l *liveness) lost() map[string]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]bool{}
	for name, p := range l.nodes {
		if p.lost() {
			out[name] = true
		}
	}
	return out
}

// follow sets the nodes to ping. Without nodes no goroutine runs.
func (l *liveness) follow(ctx context.Context, names []string) {
	if l.ping == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	nodes := map[string]*nodeLiveness{}
	for _, n := range names {
		if nodes[n] = l.nodes[n]; nodes[n] == nil {
			nodes[n] = &nodeLiveness{}
		}
	}
	l.nodes = nodes
	switch {
	case len(nodes) == 0 && l.stop != nil:
		l.stop()
		l.stop = nil
	case len(nodes) > 0 && l.stop == nil:
		ctx, l.stop = context.WithCancel(ctx)
		go l.run(ctx)
	}
}

func (l *liveness) run(ctx context.Context) {
	tick := time.NewTicker(pingInterval)
	defer tick.Stop()
	for {
		l.round(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// round pings all nodes in parallel, and does not wait for the answers.
func (l *liveness) round(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, p := range l.nodes {
		if p.busy {
			continue
		}
		p.busy = true
		go func() {
			limited, cancel := context.WithTimeout(ctx, pingTimeout)
			defer cancel()
			l.note(p, l.ping(limited, name))
		}()
	}
}

// note records the result of a ping.
func (l *liveness) note(p *nodeLiveness, err error) {
	l.mu.Lock()
	was := p.lost()
	p.busy = false
	switch {
	case err == nil:
		p.everConnected, p.unanswered, p.missedPings = true, false, 0
	case l.noConnection != nil && l.noConnection(err):
		p.missedPings++
	default:
		p.everConnected, p.unanswered = true, true
	}
	changed := was != p.lost()
	l.mu.Unlock()
	if changed {
		l.changed()
	}
}
