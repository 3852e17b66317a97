package tcpbalancer

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// choice reports whether there is more than one server to choose from. Without that nobody is watched or judged.
func (b *Balancer) choice() bool {
	n := 0
	for _, s := range b.servers {
		if s.tier != fallback {
			n++
		}
	}
	return n > 1
}

// wanted reports whether a server has to be watched: while it has connections, and until it is well again.
func (b *Balancer) wanted(s *server) bool {
	return b.ctx.Err() == nil && b.choice() && slices.Contains(b.servers, s) &&
		(len(s.pairs) > 0 || s.doubt || s.problem != nil && s.tier != fallback)
}

// tend starts the canaries that are missing. They end by themselves.
func (b *Balancer) tend() {
	if !b.choice() {
		for _, s := range b.servers {
			s.problem, s.doubt = nil, false // nobody would find out that it is well again
		}
	}
	for _, s := range b.servers {
		if !s.watched && b.wanted(s) {
			s.watched = true
			ctx := b.ctx
			b.tasks.Go(func() { b.watch(ctx, s) })
		}
	}
}

// suspect notes that a server could not be dialled; a canary finds out the rest.
func (b *Balancer) suspect(s *server, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx.Err() != nil || s.problem != nil || !b.choice() {
		return
	}
	b.setProblem(s, err)
	b.tend()
}

// judge notes what a canary found. Clients are sent away from a server that does not answer, and from one that says
// itself that it is not well, if there is a better one.
func (b *Balancer) judge(s *server, problem error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.doubt = false
	if (s.problem == nil) != (problem == nil) {
		b.setProblem(s, problem)
	}
	var unwell *unwellError
	if problem != nil && !errors.As(problem, &unwell) {
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

// setProblem changes what is known of a server and says so.
func (b *Balancer) setProblem(s *server, problem error) {
	s.problem, s.since = problem, time.Now()
	switch {
	case problem == nil:
		b.log.Infof("API server %s is well again", s.address)
	case s.tier == own: // it starts together with us
		b.log.Infof("this machine's API server does not answer, others are used: %v", reason(problem))
	default:
		b.log.Warnf("API server %s is not well, others are used: %v", s.address, reason(problem))
	}
	b.notify()
}

// Server is what is known of one server.
type Server struct {
	Address string `json:"address"` // HOST:PORT as the cluster is told
	// Own is this machine's own.
	Own bool `json:"own,omitempty"`
	// Fallback is one that is not in the cluster's list, and tried when nothing else works.
	Fallback    bool `json:"fallback,omitempty"`
	Connections int  `json:"connections,omitempty"`
	// Problem says why it is not used, since when.
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
