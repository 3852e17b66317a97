package coredns

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"
	"github.com/miekg/dns"
	"github.com/sirupsen/logrus"
)

// upstreams returns the name servers of a resolv.conf, without those of ownAddresses, to which forwarding would loop. Loopback addresses
// stay: this process is in the host's network namespace, where the stub resolvers of systemd-resolved and Docker answer. A missing
// file has none.
func upstreams(path string, ownAddresses []netip.Addr) []string {
	conf, err := dns.ClientConfigFromFile(path)
	if err != nil {
		return nil
	}
	var out []string
	for _, server := range conf.Servers {
		addr, err := netip.ParseAddr(server)
		if err != nil || slices.Contains(ownAddresses, addr.Unmap().WithZone("")) || slices.Contains(out, server) {
			continue
		}
		out = append(out, server)
	}
	return out[:min(len(out), maxUpstreams)]
}

// maxUpstreams is the limit of the forward plugin.
const maxUpstreams = 15

// noUpstream answers SERVFAIL at once, in the place of forward on a host without name servers.
type noUpstream struct{}

func setupNoUpstream(c *caddy.Controller) error {
	dnsserver.GetConfig(c).AddPlugin(func(plugin.Handler) plugin.Handler { return noUpstream{} })
	return nil
}

// ServeDNS implements plugin.Handler.
func (noUpstream) ServeDNS(context.Context, dns.ResponseWriter, *dns.Msg) (int, error) {
	return dns.RcodeServerFailure, nil
}

// Name implements plugin.Handler.
func (noUpstream) Name() string { return noUpstreamDirective }

// maxForwarded is how many queries may wait for upstreams at once in all forward blocks. Each holds a socket, and this process's
// descriptors are also the kubelet's and containerd's. One block alone gets half: the 1000 that the Corefiles of kubeadm and k3s allow.
const maxForwarded = 2000

// forwarded counts the queries of all forward blocks that wait for upstreams, also across reloads.
type forwarded struct {
	mu     sync.Mutex
	free   int
	warned time.Time // when a warning was logged last
}

// limitForward returns the set-up of forward with a limit.
func limitForward(forward caddy.SetupFunc, all *forwarded) caddy.SetupFunc {
	return func(c *caddy.Controller) error {
		dnsserver.GetConfig(c).AddPlugin(func(next plugin.Handler) plugin.Handler { return &limit{Handler: next, all: all} })
		return forward(c)
	}
}

// limit answers SERVFAIL at once for queries above the limit of a forward block, which is the number of places that are free: so a
// block whose upstreams do not answer leaves as many places to the others as it takes.
type limit struct {
	plugin.Handler // the next one
	all            *forwarded
	taken          int // of all, by this block; guarded by all.mu
}

// ServeDNS implements plugin.Handler. The probe of loop always passes: the loop that it looks for takes all places.
func (l *limit) ServeDNS(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	if ctx.Value(loopProbe{}) == nil {
		if !l.take() {
			return dns.RcodeServerFailure, nil // with an error, the cache plugin would keep the failure for seconds
		}
		defer l.put()
	}
	return plugin.NextOrFailure(l.Name(), l.Handler, ctx, w, r)
}

// Name implements plugin.Handler.
func (*limit) Name() string { return forwardDirective }

// take takes a place if the block may have one more. It logs at most once a minute that queries are refused.
func (l *limit) take() bool {
	l.all.mu.Lock()
	defer l.all.mu.Unlock()
	if l.taken < l.all.free {
		l.taken, l.all.free = l.taken+1, l.all.free-1
		return true
	}
	if time.Since(l.all.warned) >= time.Minute {
		l.all.warned = time.Now()
		logrus.WithField("component", "dns").Warnf("%d queries of a forward block wait for upstream name servers: refusing further ones", l.taken)
	}
	return false
}

func (l *limit) put() {
	l.all.mu.Lock()
	defer l.all.mu.Unlock()
	l.taken, l.all.free = l.taken-1, l.all.free+1
}

// loopProbe is the key of a context that carries the probe of loop.
type loopProbe struct{}

// loop detects upstreams that send queries back to this name server, by a query for a random name. Once a loop is found, it answers
// SERVFAIL to all queries that would be forwarded.
type loop struct {
	plugin.Handler // the next one
	probe          string
	seen           atomic.Int32
	found          atomic.Bool
}

// loopAfter is how often the probe must be received to be a loop. The first time is from ask itself.
const loopAfter = 3

func setupLoop(c *caddy.Controller) error {
	l := &loop{probe: strings.ToLower(rand.Text()) + ".coracle-loop-probe."}
	config := dnsserver.GetConfig(c)
	config.AddPlugin(func(next plugin.Handler) plugin.Handler {
		l.Handler = next
		return l
	})
	stop := make(chan struct{})
	c.OnStartup(func() error {
		go l.ask(net.JoinHostPort(config.ListenHosts[0], config.Port), stop)
		return nil
	})
	c.OnShutdown(func() error {
		close(stop)
		return nil
	})
	return nil
}

// ask sends the probe until it is answered. seen counts anew for each try, because an upstream that does not answer is no loop.
func (l *loop) ask(address string, stop <-chan struct{}) {
	for try := time.Duration(0); try < 5; try++ {
		l.seen.Store(0)
		query := new(dns.Msg).SetQuestion(l.probe, dns.TypeHINFO)
		if _, err := dns.Exchange(query, address); err == nil {
			return
		}
		select {
		case <-stop:
			return
		case <-time.After(try * time.Second):
		}
	}
}

// ServeDNS implements plugin.Handler.
func (l *loop) ServeDNS(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	probe := strings.EqualFold(r.Question[0].Name, l.probe)
	if probe && l.seen.Add(1) == loopAfter {
		l.found.Store(true)
		logrus.WithField("component", "dns").Warn("forwarding loop: an upstream name server sends queries back to the " +
			"cluster's DNS; names outside the cluster do not resolve until the host's resolv.conf or the Corefile names another")
	}
	if l.found.Load() {
		return dns.RcodeServerFailure, nil
	}
	if probe {
		ctx = context.WithValue(ctx, loopProbe{}, true)
	}
	rcode, err := plugin.NextOrFailure(l.Name(), l.Handler, ctx, w, r)
	if probe {
		err = nil // errors of upstreams are logged for real queries only
	}
	return rcode, err
}

// Name implements plugin.Handler.
func (l *loop) Name() string { return "loop" }

// probe asks one of the addresses for the Service kubernetes, which every cluster has.
func probe(ctx context.Context, address netip.AddrPort, domain string, want netip.Addr) error {
	qtype := dns.TypeA
	if want.Is6() {
		qtype = dns.TypeAAAA
	}
	name := "kubernetes.default.svc." + dns.Fqdn(domain)
	ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	answer, err := dns.ExchangeContext(ctx, new(dns.Msg).SetQuestion(name, qtype), address.String())
	if err != nil {
		if op := new(net.OpError); errors.As(err, &op) {
			err = op.Err // its text has this try's port
		}
		return fmt.Errorf("asking %s for %s: %w", address, name, err)
	}
	for _, rr := range answer.Answer {
		switch rr := rr.(type) {
		case *dns.A:
			if rr.A.Equal(want.AsSlice()) {
				return nil
			}
		case *dns.AAAA:
			if rr.AAAA.Equal(want.AsSlice()) {
				return nil
			}
		}
	}
	return fmt.Errorf("asking %s for %s: answer %s without %s", address, name, dns.RcodeToString[answer.Rcode], want)
}
