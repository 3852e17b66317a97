package check

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/state"
)

// port is a TCP port on which coracle is going to listen.
type port struct {
	use  string
	addr netip.AddrPort // the unspecified address stands for all addresses
	fix  string         // the flag that chooses another port; "" if none does
}

// peerPort is where the members of etcd reach each other.
const peerPort = 2380

// listened lists the ports that this configuration needs. Where a pass-through flag moves one, it moves here too.
func listened(cfg config.Config) []port {
	local, all := netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Unspecified()
	list := []port{
		{"the kubelet", at(cfg, all, 10250, "kubelet", "port"), "--kubelet-arg=port=PORT"},
		{"this node's way to the API", netip.AddrPortFrom(local, cfg.Node.BalancerPort), "--lb-server-port=PORT"},
		{"the kubelet's health check", at(cfg, local, 10248, "kubelet", "healthz-port"), "--kubelet-arg=healthz-port=PORT"},
	}
	if !cfg.Disabled("kube-proxy") {
		list = append(list,
			port{"kube-proxy's metrics", at(cfg, local, 10249, "kube-proxy", "metrics-bind-address"),
				"--kube-proxy-arg=metrics-bind-address=IP:PORT"},
			port{"kube-proxy's health check", at(cfg, local, 10256, "kube-proxy", "healthz-bind-address"),
				"--kube-proxy-arg=healthz-bind-address=IP:PORT"})
	}
	if cfg.Role == config.Server {
		bind := cfg.API.Bind
		if !bind.IsValid() || bind.IsUnspecified() {
			bind = all
		}
		list = append(list, port{"the Kubernetes API", netip.AddrPortFrom(bind, cfg.API.Port), "--https-listen-port=PORT"})
		if (cfg.Join.Server != "" || cfg.Join.Joined) && !cfg.Datastore.External() && len(cfg.Node.IPs) > 0 {
			list = append(list, port{"etcd, for the other servers", netip.AddrPortFrom(cfg.Node.IPs[0], peerPort), ""})
		}
	}
	return list
}

// at is where a component listens by default, or where a pass-through flag says, as a port or an address with one.
func at(cfg config.Config, addr netip.Addr, number uint16, component, flag string) netip.AddrPort {
	for _, arg := range cfg.Args[component] {
		value, ok := strings.CutPrefix(arg, flag+"=")
		if !ok {
			continue
		}
		if n, err := strconv.ParseUint(value, 10, 16); err == nil {
			number = uint16(n)
		} else if both, err := netip.ParseAddrPort(value); err == nil {
			addr, number = both.Addr(), both.Port()
		}
	}
	return netip.AddrPortFrom(addr, number)
}

// ports tries to listen on each port and finds out who does if that fails. Where coracle runs, its own ports count as free.
func ports(ctx context.Context, m *Machine) (found []Verdict) {
	for _, p := range listened(m.Config) {
		if p.addr.Port() != 0 { // 0: the component is configured not to listen
			found = append(found, p.try(ctx, true)...)
		}
	}
	if m.Running {
		front, ok, _ := state.Read(m.Config.Dirs, state.Front) // it keeps the API's socket
		found = slices.DeleteFunc(found, func(v Verdict) bool {
			return strings.Contains(v.Finding, "coracle-core") || ok && strings.Contains(v.Finding, takenBy(front.PID))
		})
		return Else(found, Okf("no other program uses one"))
	}
	return Else(found, Okf("all are free"))
}

// passing is how long the listener of a process that is ending may still be there.
const passing = 500 * time.Millisecond

// try listens on the port for a moment. It tries again if that fails and nobody is seen who listens.
func (p port) try(ctx context.Context, again bool) []Verdict {
	address := p.addr.String()
	if p.addr.Addr().IsUnspecified() {
		address = ":" + strconv.Itoa(int(p.addr.Port())) // both families where the machine has both
	}
	l, err := net.Listen("tcp", address)
	switch {
	case err == nil:
		l.Close()
		return nil
	case errors.Is(err, syscall.EADDRINUSE):
		fix := "stop that"
		if p.fix != "" {
			fix += ", or choose another port with " + p.fix
		}
		who := holder(p.addr.Port())
		if again && who == unseen {
			// Perhaps a child of a coracle that has just ended: it had a copy of the listener from its fork until it has called exec.
			select {
			case <-ctx.Done():
			case <-time.After(passing):
			}
			return p.try(ctx, false)
		}
		return Failf(fix, "port %d, which %s needs, is taken by %s", p.addr.Port(), p.use, who)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return Failf("", "%s cannot listen on %s: this machine has no such address", p.use, p.addr.Addr())
	}
	return Failf("", "listening on %s for %s: %v", p.addr, p.use, err)
}
