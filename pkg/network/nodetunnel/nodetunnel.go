// Package nodetunnel keeps a node's tunnel to every server, so that servers reach the node and its pods also where
// they cannot dial them: behind a NAT or a firewall. What goes over it is package tunnel's business; this package says
// which servers there are and what they may reach.
package nodetunnel

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/network/tcpbalancer"
	"github.com/coracle-dev/coracle/pkg/network/tunnel"
)

// Tunnels is the component.
type Tunnels struct {
	Path          string // where servers take tunnels
	CA, Cert, Key string // files: what servers are known by, and who the node is
	// Servers are the cluster's as the balancer knows them, with a channel that is closed at the next change.
	Servers func() ([]tcpbalancer.Server, <-chan struct{})
	// Name, IPs and ExternalIPs are the node's.
	Name             string
	IPs, ExternalIPs []netip.Addr
	// Pods are the ranges that pods of this node have their addresses from, as far as they are known.
	Pods   func() []netip.Prefix
	Report func([]state.Tunnel)
}

// Run keeps tunnels until ctx is done. It is ready at once: nobody on this machine needs one.
func (t Tunnels) Run(ctx context.Context, ready func()) error {
	ready()
	k := &keeper{Tunnels: t, log: logrus.WithField("component", "tunnel"), kept: map[string]context.CancelFunc{}, states: map[string]state.Tunnel{}}
	k.follow(ctx)
	k.tasks.Wait()
	return nil
}

// keeper is Tunnels at work.
type keeper struct {
	Tunnels
	log   logrus.FieldLogger
	tasks sync.WaitGroup
	kept  map[string]context.CancelFunc // by address

	mu     sync.Mutex
	states map[string]state.Tunnel
}

// follow keeps a tunnel to each server that is in the list.
func (k *keeper) follow(ctx context.Context) {
	for {
		servers, changed := k.Servers()
		want := targets(servers)
		for address, stop := range k.kept {
			if !slices.Contains(want, address) {
				stop()
				delete(k.kept, address)
				k.note(ctx, address, nil)
			}
		}
		for _, address := range want {
			if k.kept[address] == nil {
				ctx, stop := context.WithCancel(ctx)
				k.kept[address] = stop
				k.tasks.Go(func() { k.keep(ctx, address) })
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// targets are the servers that need a tunnel: all but this machine's own. Where none of the list answers, the name
// by which the node joined may do: the list may hold addresses that mean nothing here.
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

// keep dials one server again and again.
func (k *keeper) keep(ctx context.Context, server string) {
	node := tunnel.Node{Path: k.Path, TLS: k.tls, Allow: k.allow}
	tries, lost := 0, time.Now()
	for ctx.Err() == nil {
		err := node.Connect(ctx, server, func() {
			tries = 0
			k.log.Infof("tunnel to server %s stands", server)
			k.note(ctx, server, &state.Tunnel{Server: server, Since: time.Now()})
		})
		if ctx.Err() != nil {
			return
		}
		if tries == 0 {
			lost = time.Now()
			k.log.Infof("no tunnel to server %s: %v", server, err)
		}
		k.note(ctx, server, &state.Tunnel{Server: server, Error: err.Error()})
		tries++
		timer := time.NewTimer(pause(tries, time.Since(lost), err))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// pause is how long to wait before the next try: little after a restart of the server, more when it refuses us or has
// been away for long. It differs from node to node, because all lose a server at once.
func pause(tries int, lost time.Duration, err error) time.Duration {
	most := 5 * time.Second
	var answer *tunnel.AnswerError
	if lost > 10*time.Minute || errors.As(err, &answer) && answer.Status != http.StatusServiceUnavailable {
		most = time.Minute
	}
	d := min(most, 250*time.Millisecond<<min(tries-1, 10))
	return d/2 + rand.N(d/2)
}

// note tells what became of a tunnel, unless ctx is done; nil is that nobody wants it any more.
func (k *keeper) note(ctx context.Context, server string, s *state.Tunnel) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	if s == nil {
		delete(k.states, server)
	} else {
		if old := k.states[server]; old.Error == s.Error && s.Error != "" {
			return
		}
		k.states[server] = *s
	}
	all := make([]state.Tunnel, 0, len(k.states))
	for _, s := range k.states {
		all = append(all, s)
	}
	slices.SortFunc(all, func(x, y state.Tunnel) int { return strings.Compare(x.Server, y.Server) })
	k.Report(all)
}

// tls reads the files each time: certificates are renewed.
func (k *keeper) tls() (*tls.Config, error) {
	pem, err := os.ReadFile(k.CA)
	if err != nil {
		return nil, fmt.Errorf("reading the cluster's CA: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("reading the cluster's CA: no certificate in %s", k.CA)
	}
	cert, err := tls.LoadX509KeyPair(k.Cert, k.Key)
	if err != nil {
		return nil, fmt.Errorf("reading the node's certificate: %w", err)
	}
	// Every server's certificate is good for loopback, and perhaps not for the name by which it is reached from here.
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{cert}, ServerName: "127.0.0.1"}, nil
}
