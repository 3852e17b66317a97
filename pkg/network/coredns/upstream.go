package coredns

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"
	"github.com/miekg/dns"
	"github.com/sirupsen/logrus"
)

// upstreams are the name servers of a resolv.conf, without those that are ourselves: forwarding to them would loop.
// Loopback addresses stay: this process lives in the host's network namespace, where systemd-resolved's and
// Docker's stubs answer. A missing file has none.
func upstreams(path string, ourselves []netip.Addr) []string {
	conf, err := dns.ClientConfigFromFile(path)
	if err != nil {
		return nil
	}
	var out []string
	for _, server := range conf.Servers {
		addr, err := netip.ParseAddr(server)
		if err != nil || slices.Contains(ourselves, addr.Unmap().WithZone("")) || slices.Contains(out, server) {
			continue
		}
		out = append(out, server)
	}
	return out[:min(len(out), maxUpstreams)]
}

// maxUpstreams is what the forward plugin takes.
const maxUpstreams = 15

// noUpstream answers SERVFAIL at once for what nobody else answered.
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

// maxForwarded is how many queries may wait for upstreams at once: as many as the Corefiles of kubeadm and k3s allow. Each
// holds a socket, and this process's descriptors are also the kubelet's and containerd's.
const maxForwarded = 1000

var errTooManyForwarded = fmt.Errorf("%d queries wait for upstream name servers already", maxForwarded)

// limitForward returns the set-up of forward with a limit. All server blocks share inFlight, also across reloads.
func limitForward(forward caddy.SetupFunc, inFlight chan struct{}) caddy.SetupFunc {
	return func(c *caddy.Controller) error {
		dnsserver.GetConfig(c).AddPlugin(func(next plugin.Handler) plugin.Handler { return limit{next, inFlight} })
		return forward(c)
	}
}

// limit answers SERVFAIL at once for queries above the capacity of inFlight.
type limit struct {
	plugin.Handler // the next one
	inFlight       chan struct{}
}

// ServeDNS implements plugin.Handler. The probe of loop always passes: the loop that it looks for fills inFlight.
func (l limit) ServeDNS(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	if ctx.Value(loopProbe{}) == nil {
		select {
		case l.inFlight <- struct{}{}:
			defer func() { <-l.inFlight }()
		default:
			return dns.RcodeServerFailure, errTooManyForwarded
		}
	}
	return plugin.NextOrFailure(l.Name(), l.Handler, ctx, w, r)
}

// Name implements plugin.Handler.
func (limit) Name() string { return forwardDirective }

// loopProbe is the key of a context that carries the probe of loop.
type loopProbe struct{}

// loop finds out whether an upstream sends our queries back to us, by asking itself for a name that nobody else
// knows. While it does, names that would be forwarded are answered with SERVFAIL.
type loop struct {
	plugin.Handler // the next one
	probe          string
	seen           atomic.Int32
	looping        atomic.Bool
}

// loopAfter is how often the probe comes by before it is a loop. Once is our own sending.
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

// ask sends the probe until it was answered. Each sending is counted by itself: an upstream that says nothing is no loop.
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
		l.looping.Store(true)
		logrus.WithField("component", "dns").Warn("forwarding loop: an upstream name server sends queries back to the " +
			"cluster's DNS; names outside the cluster do not resolve until the host's resolv.conf or the Corefile names another")
	}
	if l.looping.Load() {
		return dns.RcodeServerFailure, nil
	}
	if probe {
		ctx = context.WithValue(ctx, loopProbe{}, true)
	}
	rcode, err := plugin.NextOrFailure(l.Name(), l.Handler, ctx, w, r)
	if probe {
		err = nil // that an upstream is away is told when somebody asks
	}
	return rcode, err
}

// Name implements plugin.Handler.
func (l *loop) Name() string { return "loop" }

// probe asks one of our addresses for the API server's Service, which every cluster has.
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
