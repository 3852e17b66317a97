// Package apibalancer is the component through which all parts of a node reach the API: a port on loopback that forwards to a healthy
// server.
//
// Package tcpbalancer forwards and checks. This package keeps its list of servers: it watches the endpoints of the Service kubernetes,
// and remembers them on disk for a start while no server answers.
package apibalancer

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"

	"github.com/sirupsen/logrus"
	certutil "k8s.io/client-go/util/cert"

	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/network/tcpbalancer"
)

// Options are what New needs.
type Options struct {
	Listen string // HOST:PORT on loopback
	// Own and OwnDial are this machine's own server, as in tcpbalancer.Options.
	Own, OwnDial string
	// Servers are those known at start, HOST:PORT. Fallback are other names of them.
	Servers, Fallback []string
	File              string // remembers the servers, see state.APIServers
	Kubeconfig        string // for the watch
	// APIReady is closed when the API serves this node. The watch begins then.
	APIReady <-chan struct{}
	CA       string // file
	Report   func([]tcpbalancer.Server)
}

// Balancer is the component. Servers works before Run.
type Balancer struct {
	Options
	pool *tcpbalancer.Balancer
}

// New returns a balancer with the remembered servers.
func New(o Options) *Balancer {
	b := &Balancer{Options: o}
	log := logrus.WithField("component", "balancer")
	known := slices.Clone(o.Servers)
	old, err := state.ReadAPIServers(o.File)
	if err != nil {
		log.WithError(err).Warn("reading the remembered API servers; continuing without them")
	}
	for _, address := range old.Servers {
		if !slices.Contains(known, address) {
			known = append(known, address)
		}
	}
	b.pool = tcpbalancer.New(tcpbalancer.Options{
		Own: o.Own, OwnDial: o.OwnDial, Listed: known, Fallback: slices.Concat(o.Fallback, old.Former), TLS: b.tls, Log: log,
	})
	return b
}

// Servers returns the API servers, best first, and a channel that is closed at the next change.
func (b *Balancer) Servers() ([]tcpbalancer.Server, <-chan struct{}) { return b.pool.Snapshot() }

// Run forwards connections. It is ready when it listens, whether a server answers or not. When ctx is done it returns without closing
// connections: the process ends soon, and goroutines that upstream leaves running would log errors.
func (b *Balancer) Run(ctx context.Context, ready func()) error {
	config := net.ListenConfig{KeepAliveConfig: net.KeepAliveConfig{Enable: false}, KeepAlive: -1} // clients are local
	listener, err := config.Listen(ctx, "tcp", b.Listen)
	if err != nil {
		return fmt.Errorf("listening for this node's own requests to the API: %w; another port can be given with --lb-server-port", err)
	}
	ready()
	go b.follow(ctx)
	go b.report(ctx)
	ended := make(chan error, 1)
	go func() { ended <- b.pool.Serve(context.WithoutCancel(ctx), listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return nil
	}
}

// report reports the servers after each change.
func (b *Balancer) report(ctx context.Context) {
	for {
		servers, changed := b.pool.Snapshot()
		b.Report(servers)
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// tls is the configuration of probes, with the server name that clients of the balancer use.
func (b *Balancer) tls() (*tls.Config, error) {
	roots, err := certutil.NewPool(b.CA)
	if err != nil {
		return nil, fmt.Errorf("reading the cluster's CA %s: %w", b.CA, err)
	}
	return &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", NextProtos: []string{"http/1.1"}}, nil
}

// remember writes the servers down.
func (b *Balancer) remember(addresses []string) error {
	known := state.APIServers{Servers: addresses}
	all, _ := b.pool.Snapshot()
	for _, s := range all {
		if s.Fallback && !slices.Contains(b.Fallback, s.Address) {
			known.Former = append(known.Former, s.Address)
		}
	}
	slices.Sort(known.Former) // their order of preference changes without any event
	return known.Write(b.File)
}
