package servicelb

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-dev/coracle/pkg/core/addon"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// pooledOutcome returns the outcome for a Service that gets addresses of pools.
func pooledOutcome(req *request, got *assignment) outcome {
	o := outcome{service: req.Service, pooled: true, problem: got.problem}
	var addrs []address
	for _, a := range got.addrs {
		addrs = append(addrs, address{Addr: a})
	}
	sortAddresses(req.Service, addrs)
	for _, a := range addrs {
		o.ingress = append(o.ingress, entryFor(req.Service, a))
	}
	o.ready = metav1.Condition{Type: readyCondition, Status: metav1.ConditionFalse, Reason: noAddress, Message: got.problem}
	if len(addrs) > 0 {
		o.ready.Status, o.ready.Reason, o.ready.Message = metav1.ConditionTrue, assigned, list("address of pool", "addresses of pools", got.pools)
		if got.problem != "" {
			o.ready.Message += "; " + got.problem
		}
	}
	return o
}

// isNew reports whether an assignment has an address, or ports, that the Service does not have by its status.
func (got *assignment) isNew(req *request) bool {
	for _, a := range got.addrs {
		for _, p := range req.ports {
			if !req.has[a][p] {
				return true
			}
		}
	}
	return false
}

// announcers returns the nodes that may announce the addresses of a Service.
func (in snapshot) announcers(s *corev1.Service, selected bool) (names []string) {
	if isGateway(s) {
		return in.gatewayNodes()
	}
	where := in.endpoints[types.NamespacedName{Namespace: s.Namespace, Name: s.Name}]
	for _, n := range in.nodes {
		switch {
		case unsuitable(n, s, selected) != "" || kube.NodeReadiness(n) != corev1.ConditionTrue:
		case isLocal(s) && !where.none() && !where.at(n.Name):
		default:
			names = append(names, n.Name)
		}
	}
	slices.Sort(names)
	return names
}

// announced returns the addresses of pools that Services and Gateways have by their status, each with the nodes that may announce it: those of an address that
// is shared must be able to serve all its Services. ports are those of the addresses that Gateways have.
func (in snapshot) announced(gateways []addon.Gateway) (pool, ports map[netip.Addr][]string) {
	selected, own := anySelected(in.nodes), undisputed(in.nodes)
	isNodes := map[netip.Addr]bool{}
	for _, addrs := range own {
		for _, a := range addrs {
			isNodes[a.Addr] = true
		}
	}
	pool, ports = map[netip.Addr][]string{}, map[netip.Addr][]string{}
	announce := func(a netip.Addr, names []string) bool {
		if poolOf(in.pools, a) == nil || isNodes[a] || in.unusable.why(a) != "" {
			return false
		}
		if before, shared := pool[a]; shared {
			names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !slices.Contains(before, n) })
		}
		pool[a] = names
		return true
	}
	for _, s := range in.services {
		if !serves(s) || condition(s, readyCondition) == nil {
			continue
		}
		names := in.announcers(s, selected)
		for _, a := range addressesIn(s) {
			announce(a, names)
		}
	}
	for _, g := range gateways {
		for _, a := range g.Has {
			if announce(a, in.gatewayNodes()) {
				ports[a] = append(ports[a], g.Ports...)
			}
		}
	}
	return pool, ports
}

// unusable are addresses that no Service gets.
type unusable struct {
	addrs  map[netip.Addr]string // with what they are
	ranges []netip.Prefix        // of pods and Services
}

// why says what an address is, "" if a Service can get it.
func (u unusable) why(a netip.Addr) string {
	if i := slices.IndexFunc(u.ranges, func(p netip.Prefix) bool { return p.Contains(a) }); i >= 0 {
		return fmt.Sprintf("in the range %s of pods or Services", u.ranges[i])
	}
	return u.addrs[a]
}

// unusable returns what no Service gets of the pools: addresses that no machine can have, as far as this machine's own networks show, and those of the API.
func (p *Pools) unusable() (unusable, error) {
	out := unusable{addrs: map[netip.Addr]string{}, ranges: p.Barred}
	if p.none() {
		return out, nil
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return out, fmt.Errorf("listing the addresses of this machine: %w", err)
	}
	for _, a := range all {
		network, err := netip.ParsePrefix(a.String())
		if err != nil || !network.Addr().Is4() || network.Bits() > 30 {
			continue
		}
		ends, err := config.ParseRange(network.String())
		if err == nil {
			out.addrs[ends.First] = "the address of the network " + network.Masked().String()
			out.addrs[ends.Last] = "the broadcast address of the network " + network.Masked().String()
		}
	}
	for _, vip := range p.VIPs {
		out.addrs[vip] = "the address of the API (--vip)"
	}
	return out, nil
}
