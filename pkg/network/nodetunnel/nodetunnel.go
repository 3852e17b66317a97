// Package nodetunnel keeps a tunnel from a node to every server, so that servers reach the node and its pods behind a NAT or a
// firewall. Package tunnel has the protocol; this package chooses the servers and restricts what they may reach.
package nodetunnel

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/network/tcpbalancer"
	"github.com/coracle-dev/coracle/pkg/network/tunnel"
)

// Tunnels is the component.
type Tunnels struct {
	Path          string // of the request by which servers accept tunnels
	CA, Cert, Key string // files: the CA of servers, and the client certificate of the node
	// Servers returns the API servers of the balancer, and a channel that is closed at the next change.
	Servers func() ([]tcpbalancer.Server, <-chan struct{})
	// Name, IPs and ExternalIPs are those of the node.
	Name             string
	IPs, ExternalIPs []netip.Addr
	// Pods returns the pod CIDRs of this node, as far as they are known.
	Pods   func() []netip.Prefix
	Report func([]state.Tunnel)
	// Removed is the reason of an answer with which a server says that this machine is not a node any more. Run then returns the answer's
	// message.
	Removed string
}

// Run keeps tunnels until ctx is done. It is ready at once, as no other component of the node needs a tunnel.
func (t Tunnels) Run(ctx context.Context, ready func()) error {
	ready()
	r := &running{Tunnels: t, log: logrus.WithField("component", "tunnel"), stops: map[string]context.CancelFunc{}, states: map[string]state.Tunnel{}}
	ctx, r.fail = context.WithCancelCause(ctx)
	defer r.fail(nil)
	r.follow(ctx)
	r.tasks.Wait()
	if err := context.Cause(ctx); exitcode.ClassOf(err) == exitcode.Removed {
		return err
	}
	return nil
}

// running is the state of Tunnels.
type running struct {
	Tunnels
	log   logrus.FieldLogger
	fail  context.CancelCauseFunc
	tasks sync.WaitGroup
	stops map[string]context.CancelFunc // of tunnels, by the address of the server

	mu     sync.Mutex
	states map[string]state.Tunnel
}

// follow keeps a tunnel to each server of the list, until ctx is done.
func (r *running) follow(ctx context.Context) {
	for {
		servers, changed := r.Servers()
		want := targets(servers)
		for address, stop := range r.stops {
			if !slices.Contains(want, address) {
				stop()
				delete(r.stops, address)
				r.report(ctx, address, nil)
			}
		}
		for _, address := range want {
			if r.stops[address] == nil {
				ctx, stop := context.WithCancel(ctx)
				r.stops[address] = stop
				r.tasks.Go(func() { r.connect(ctx, address) })
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// targets returns the servers that get a tunnel: all but this machine's own. If none of the listed servers answers, fallback servers
// with connections are added: the listed addresses may be unreachable from here.
func targets(servers []tcpbalancer.Server) (addresses []string) {
	reachable := false
	for _, s := range servers {
		if s.Own {
			reachable = true
			continue
		}
		if !s.Fallback {
			addresses = append(addresses, s.Address)
			reachable = reachable || s.Connections > 0
		}
	}
	if reachable {
		return addresses
	}
	for _, s := range servers {
		if s.Fallback && s.Connections > 0 {
			addresses = append(addresses, s.Address)
		}
	}
	return addresses
}

// connect keeps the tunnel to one server until ctx is done.
func (r *running) connect(ctx context.Context, server string) {
	node := tunnel.Node{Path: r.Path, TLS: func() (*tls.Config, error) { return kube.NodeTLS(r.CA, r.Cert, r.Key) }, Allow: r.allow}
	tries, lost := 0, time.Now()
	for ctx.Err() == nil {
		err := node.Connect(ctx, server, func() {
			tries = 0
			r.log.Infof("tunnel to server %s stands", server)
			r.report(ctx, server, &state.Tunnel{Server: server, Since: time.Now()})
		})
		if ctx.Err() != nil {
			return
		}
		if answer, ok := errors.AsType[*tunnel.AnswerError](err); ok && answer.Reason != "" && answer.Reason == r.Removed {
			r.fail(exitcode.With(exitcode.Removed, errors.New(answer.Sentence)))
			return
		}
		if tries == 0 {
			lost = time.Now()
			r.log.Infof("no tunnel to server %s: %v", server, err)
		}
		r.report(ctx, server, &state.Tunnel{Server: server, Error: err.Error()})
		tries++
		_ = lifecycle.Sleep(ctx, pause(tries, time.Since(lost), err))
	}
}

// pause is the time until the next try: short after a restart of the server, longer when the server refuses the tunnel or is away for
// long. It is random, because all nodes lose a server at once.
func pause(tries int, lost time.Duration, err error) time.Duration {
	most := 5 * time.Second
	var answer *tunnel.AnswerError
	if lost > 10*time.Minute || errors.As(err, &answer) && answer.Status != http.StatusServiceUnavailable {
		most = time.Minute
	}
	d := min(most, 250*time.Millisecond<<min(tries-1, 10))
	return d/2 + rand.N(d/2)
}

// report reports the new state of a tunnel, unless ctx is done; nil means that the tunnel was removed.
func (r *running) report(ctx context.Context, server string, s *state.Tunnel) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	if s == nil {
		delete(r.states, server)
	} else {
		if old := r.states[server]; old.Error == s.Error && s.Error != "" {
			return
		}
		r.states[server] = *s
	}
	all := make([]state.Tunnel, 0, len(r.states))
	for _, s := range r.states {
		all = append(all, s)
	}
	slices.SortFunc(all, func(x, y state.Tunnel) int { return strings.Compare(x.Server, y.Server) })
	r.Report(all)
}
