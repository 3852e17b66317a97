package tcpbalancer

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// hasChoice reports whether there is more than one server. Otherwise servers are not probed, and count as healthy.
func (b *Balancer) hasChoice() bool {
	n := 0
	for _, s := range b.servers {
		if s.tier != fallback {
			n++
		}
	}
	return n > 1
}

// needsCanary reports whether a server has to be probed: while it has connections, and until it is healthy again.
func (b *Balancer) needsCanary(s *server) bool {
	return b.ctx.Err() == nil && b.hasChoice() && slices.Contains(b.servers, s) &&
		(len(s.pairs) > 0 || s.slow || s.problem != nil && s.tier != fallback)
}

// startCanaries starts missing canaries. They end when needsCanary is false.
func (b *Balancer) tend() {
	if !b.hasChoice() {
		for _, s := range b.servers {
			s.problem, s.slow = nil, false // no canary would find out that it is healthy again
		}
	}
	for _, s := range b.servers {
		if !s.watched && b.needsCanary(s) {
			s.watched = true
			ctx := b.ctx
			b.tasks.Go(func() { b.watch(ctx, s) })
		}
	}
}

// noteDialFailure marks a server that could not be dialed as unhealthy, and starts a canary.
func (b *Balancer) noteDialFailure(s *server, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx.Err() != nil || s.problem != nil || !b.hasChoice() {
		return
	}
	b.setProblem(s, err)
	b.tend()
}

// setHealth sets the result of a probe. Connections to a server that does not answer are closed, and those to a server that reports
// itself unhealthy if another one is healthy.
func (b *Balancer) setHealth(s *server, problem error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.slow = false
	if (s.problem == nil) != (problem == nil) {
		b.setProblem(s, problem)
	}
	if problem != nil && !errors.Is(problem, errUnready) {
		s.closePairs()
	}
	if slices.ContainsFunc(b.servers, func(s *server) bool { return s.problem == nil && s.tier != fallback }) {
		for _, s := range b.servers {
			if s.problem != nil {
				s.closePairs()
			}
		}
	}
	b.tend()
}

// setProblem changes the health of a server, logs it, and notifies.
func (b *Balancer) setProblem(s *server, problem error) {
	s.problem, s.since = problem, time.Now()
	switch {
	case problem == nil:
		b.log.Infof("API server %s is healthy again", s.address)
	case s.tier == own: // expected: it starts together with this process
		b.log.Infof("this machine's API server does not answer, others are used: %v", reason(problem))
	default:
		b.log.Warnf("API server %s is unhealthy, others are used: %v", s.address, reason(problem))
	}
	b.notify()
}

// Server is the state of one server.
type Server struct {
	Address string `json:"address"` // HOST:PORT as in the cluster's list
	// Own is set for this machine's own server.
	Own bool `json:"own,omitempty"`
	// Fallback is set for a server that is not in the cluster's list, which is tried last.
	Fallback    bool `json:"fallback,omitempty"`
	Connections int  `json:"connections,omitempty"`
	// Problem says why the server is unhealthy, and Since from when.
	Problem string    `json:"problem,omitempty"`
	Since   time.Time `json:"since,omitzero"`
}

// Snapshot returns all servers, the preferred first, and a channel that is closed at the next change.
func (b *Balancer) Snapshot() ([]Server, <-chan struct{}) {
	all := b.candidates()
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]Server, len(all))
	for i, s := range all {
		out[i] = Server{Address: s.address, Own: s.tier == own, Fallback: s.tier == fallback, Connections: len(s.pairs)}
		if s.problem != nil {
			out[i].Problem, out[i].Since = fmt.Sprint(reason(s.problem)), s.since
		}
	}
	return out, b.changed
}
