package config

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// nodeIPs returns the given addresses, or else one address of the host for each IP family of the cluster, with their sources.
func (d *decoder) nodeIPs(r raw, n Network) ([]netip.Addr, []AddressSource) {
	if len(r["node-ip"].items) == 0 {
		return d.hostIPs(r, n)
	}
	return d.givenIPs(r, n), nil
}

func (d *decoder) givenIPs(r raw, n Network) []netip.Addr {
	cluster := prefixAddrs(n.ClusterCIDRs)
	given := d.addrs(r["node-ip"])
	d.checkPair(r["node-ip"], given)
	for _, a := range given {
		if why := unusable(a); why != "" {
			d.add("%s: %s is %s; a node's address must be one that other hosts can use", r["node-ip"].label(), a, why)
		}
	}
	if d.settled && len(given) == len(r["node-ip"].items) && families(given) != families(cluster) && len(cluster) > 0 {
		d.add("%s is %s but %s is %s; both need the same IP families in the same order",
			r["node-ip"].label(), families(given), r["cluster-cidr"].label(), families(cluster))
	}
	return given
}

// externalIPs returns the addresses at which clients outside the cluster reach the node.
func (d *decoder) externalIPs(r raw, n Network) []netip.Addr {
	given := d.addrs(r["node-external-ip"])
	d.checkPair(r["node-external-ip"], given)
	for _, a := range given {
		why := unusable(a)
		if slices.ContainsFunc(slices.Concat(n.ClusterCIDRs, n.ServiceCIDRs), func(p netip.Prefix) bool { return p.Contains(a) }) {
			why = "in the network of pods or Services"
		}
		if why != "" {
			d.add("%s: %s is %s; other machines could not reach the node there", r["node-external-ip"].label(), a, why)
		}
	}
	return given
}

// unusable returns the reason why the kubelet and the API server refuse an address, "" if they accept it.
func unusable(a netip.Addr) string {
	switch {
	case a.IsLoopback():
		return "a loopback address"
	case a.IsUnspecified():
		return "the unspecified address"
	case a.IsMulticast():
		return "a multicast address"
	case a.IsLinkLocalUnicast():
		return "a link-local address"
	}
	return ""
}

// hostIPs returns an address of this host for each IP family of the cluster. If the cluster's families are not known yet, it
// returns one of the first family that the host has.
func (d *decoder) hostIPs(r raw, n Network) (out []netip.Addr, sources []AddressSource) {
	want := []bool{false, true} // is it IPv6?
	if d.settled {
		want = nil
		for _, p := range n.ClusterCIDRs {
			want = append(want, p.Addr().Is6())
		}
	}
	ours := slices.Concat(n.ClusterCIDRs, n.ServiceCIDRs)
	take := func(a netip.Addr, source AddressSource) {
		out, sources = append(out, a), append(sources, source)
		r["node-ip"].deriveOne(a.String(), source.String())
	}
	for _, v6 := range want {
		if a, how := d.host.nodeIP(v6, ours); a.IsValid() && (d.settled || len(out) == 0) {
			take(a, how)
		}
	}
	if len(out) > 0 {
		if d.settled && len(out) < len(want) {
			how := "give one with --node-ip"
			if r["cluster-cidr"].layer != fromCluster {
				how += ", or one family only with --cluster-cidr and --service-cidr"
			}
			d.list = append(d.list, NotYet{fmt.Errorf("%s: this host has no address for %s; %s", r["cluster-cidr"].label(), missing(out, want), how)})
		}
		return out, sources
	}
	if !d.settled {
		want = want[:1]
	}
	for _, v6 := range want {
		take(standIn(v6), NoAddress)
	}
	return out, sources
}

// NotYet is an error that may be temporary: a machine that is still booting may get an address later.
type NotYet struct{ error }

// Unwrap returns the error itself.
func (n NotYet) Unwrap() error { return n.error }

// OnlyNotYet reports whether all errors in an error of Resolve are NotYet, so that a retry may succeed.
func OnlyNotYet(err error) bool {
	var several interface{ Unwrap() []error }
	if !errors.As(err, &several) {
		return errors.As(err, new(NotYet))
	}
	return !slices.ContainsFunc(several.Unwrap(), func(e error) bool { return !errors.As(e, new(NotYet)) })
}

func missing(have []netip.Addr, want []bool) string {
	for _, v6 := range want {
		if !slices.ContainsFunc(have, func(a netip.Addr) bool { return a.Is6() == v6 }) {
			return family(standIn(v6))
		}
	}
	return "all families"
}

// standIn is the node's address on a host that has only loopback addresses, which Kubernetes refuses. RFC 7600 and RFC 9780
// reserve these addresses.
func standIn(v6 bool) netip.Addr {
	if v6 {
		return netip.MustParseAddr("100:0:0:1::8")
	}
	return netip.MustParseAddr("192.0.0.8")
}

// StandIn reports whether a node IP replaces a missing address, because the host has loopback addresses only. The node process adds it to
// an interface of its own.
func StandIn(a netip.Addr) bool { return a == standIn(a.Is6()) }

func (d *decoder) bind(v *value, node []netip.Addr) netip.Addr {
	if it := v.one(); it.text != "" {
		a, _ := d.addr(it, v.setting)
		return a
	}
	out := netip.IPv4Unspecified()
	if slices.ContainsFunc(node, netip.Addr.Is6) {
		out = netip.IPv6Unspecified() // takes IPv4 too
	}
	v.derive(out.String())
	return out
}

// advertise returns the given address, or else the one that the API listens on, or else the node's.
func (d *decoder) advertise(v *value, bind netip.Addr, node []netip.Addr) netip.Addr {
	if it := v.one(); it.text != "" {
		a, ok := d.addr(it, v.setting)
		if why := unusable(a); ok && why != "" {
			d.add("%s: %s is %s; pods could not reach the API there", v.label(), a, why)
		}
		if ok && len(node) > 0 && a.Is4() != node[0].Is4() {
			d.add("%s: %s is %s but the cluster's first family is %s", v.label(), a, family(a), family(node[0]))
		}
		return a
	}
	if len(node) == 0 {
		return netip.Addr{} // the mistake is reported already
	}
	out := node[0]
	if bind.IsValid() && unusable(bind) == "" && bind.Is4() == out.Is4() {
		out = bind
	}
	v.derive(out.String())
	return out
}

// checkPorts reports an API port that NodePort Services or the node's balancer would take.
func (d *decoder) checkPorts(r raw, cfg Config) {
	if cfg.API.Port == cfg.Node.BalancerPort {
		d.add("%s and %s are both %d; each needs its own", r["https-listen-port"].label(), r["lb-server-port"].label(), cfg.API.Port)
	}
	first, last, ok := parsePortRange(cfg.Network.NodePorts)
	if ok && first <= cfg.API.Port && cfg.API.Port <= last {
		d.add("%s: %d lies in %s %s; choose another port, or another range", r["https-listen-port"].label(), cfg.API.Port, r["service-node-port-range"].label(), cfg.Network.NodePorts)
	}
}
