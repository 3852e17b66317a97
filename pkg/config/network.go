package config

import (
	"net/netip"
	"slices"
	"strings"
)

// family names an address' family as people do.
func family(a netip.Addr) string {
	if a.Is4() {
		return "IPv4"
	}
	return "IPv6"
}

func families(addrs []netip.Addr) string {
	names := make([]string, len(addrs))
	for i, a := range addrs {
		names[i] = family(a)
	}
	return strings.Join(names, ", ")
}

func prefixAddrs(prefixes []netip.Prefix) []netip.Addr {
	out := make([]netip.Addr, len(prefixes))
	for i, p := range prefixes {
		out[i] = p.Addr()
	}
	return out
}

// checkPair reports a list that is neither one address nor one of each family.
func (d *decoder) checkPair(v *value, addrs []netip.Addr) {
	if len(addrs) > 2 || len(addrs) == 2 && addrs[0].Is4() == addrs[1].Is4() {
		d.add("%s: %s is %s; give one, or one IPv4 and one IPv6", v.label(), v, families(addrs))
	}
}

// checkFamilies reports CIDR lists that are no pair or do not agree.
func (d *decoder) checkFamilies(r *raw, n Network) {
	for _, x := range []struct {
		v     *value
		found []netip.Prefix
	}{{&r.clusterCIDR, n.ClusterCIDRs}, {&r.serviceCIDR, n.ServiceCIDRs}} {
		if len(x.v.items) == 0 {
			d.add("%s: give at least one CIDR", x.v.label())
		}
		d.checkPair(x.v, prefixAddrs(x.found))
	}
	cluster, service := prefixAddrs(n.ClusterCIDRs), prefixAddrs(n.ServiceCIDRs)
	whole := len(n.ClusterCIDRs) == len(r.clusterCIDR.items) && len(n.ServiceCIDRs) == len(r.serviceCIDR.items)
	if whole && families(cluster) != families(service) {
		d.add("%s is %s but %s is %s; both need the same IP families in the same order",
			r.clusterCIDR.label(), families(cluster), r.serviceCIDR.label(), families(service))
	}
}

// checkSizes holds ranges against the limits of kube-apiserver and the node CIDR allocator.
func (d *decoder) checkSizes(r *raw) {
	ownMask := slices.ContainsFunc(r.controllerArg.items, func(it item) bool {
		return strings.HasPrefix(it.text, "node-cidr-mask-size")
	})
	check := func(v *value, min4, max4, min6, max6 int, why string) {
		for _, it := range v.items {
			p, err := netip.ParsePrefix(it.text)
			if err != nil {
				continue
			}
			least, most := min4, max4
			if p.Addr().Is6() {
				least, most = min6, max6
			}
			if p.Bits() < least || p.Bits() > most {
				d.add("%s: %s must be from /%d to /%d: %s", it.label(v.setting), p, least, most, why)
			}
		}
	}
	check(&r.serviceCIDR, 12, 28, 108, 124, "Kubernetes allows 2^20 Services at most, and the DNS Service needs the tenth address")
	if !ownMask {
		check(&r.clusterCIDR, 8, 24, 48, 64, "each node gets a /24 (IPv4) or /64 (IPv6) of it, and there may be 2^16 of those")
	}
}

// defaultDNS is the tenth address of each service range.
func (d *decoder) defaultDNS(v *value, services []netip.Prefix) []netip.Addr {
	var out []netip.Addr
	for _, p := range services {
		a := p.Addr()
		for range 10 {
			a = a.Next()
		}
		out = append(out, a)
	}
	v.derive(out)
	return out
}

// checkDNS holds given DNS addresses against the service ranges.
func (d *decoder) checkDNS(v *value, n Network) {
	d.checkPair(v, n.DNS)
	if len(n.ServiceCIDRs) > 0 && families(n.DNS) != families(prefixAddrs(n.ServiceCIDRs)) {
		d.add("%s is %s but --service-cidr is %s; both need the same IP families in the same order",
			v.label(), families(n.DNS), families(prefixAddrs(n.ServiceCIDRs)))
		return
	}
	for i, a := range n.DNS {
		if i < len(n.ServiceCIDRs) && !n.ServiceCIDRs[i].Contains(a) {
			d.add("%s: %s is not in the service range %s", v.items[i].label(v.setting), a, n.ServiceCIDRs[i])
		}
	}
}

// nodeIPs are the given ones, else one of the host's for each family of the cluster.
func (d *decoder) nodeIPs(r *raw, n Network) []netip.Addr {
	cluster := prefixAddrs(n.ClusterCIDRs)
	if len(r.nodeIP.items) == 0 {
		return d.hostIPs(r, n)
	}
	given := d.addrs(&r.nodeIP)
	d.checkPair(&r.nodeIP, given)
	for _, a := range given {
		if why := unusable(a); why != "" {
			d.add("%s: %s is %s; a node's address must be one that other hosts could use", r.nodeIP.label(), a, why)
		}
	}
	if d.role == Server && len(given) == len(r.nodeIP.items) && families(given) != families(cluster) && len(cluster) > 0 {
		d.add("%s is %s but %s is %s; both need the same IP families in the same order",
			r.nodeIP.label(), families(given), r.clusterCIDR.label(), families(cluster))
	}
	return given
}

// unusable says why the kubelet and the API refuse an address, or nothing.
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

// hostIPs picks an address of this host for each family of the cluster, or for the first family that the host has
// if the cluster's are not known yet.
func (d *decoder) hostIPs(r *raw, n Network) []netip.Addr {
	want := []bool{false, true} // is it IPv6?
	if d.role == Server {
		want = nil
		for _, p := range n.ClusterCIDRs {
			want = append(want, p.Addr().Is6())
		}
	}
	ours := slices.Concat(n.ClusterCIDRs, n.ServiceCIDRs)
	var out []netip.Addr
	for _, v6 := range want {
		if a := d.host.nodeIP(v6, ours); a.IsValid() {
			out = append(out, a)
		}
	}
	switch {
	case d.role == Agent && len(out) > 1:
		out = out[:1]
	case len(out) == 0 && len(want) > 0:
		out = append(out, standIn(want[0]))
		if len(want) > 1 && d.role == Server {
			out = append(out, standIn(want[1]))
		}
	case d.role == Server && len(out) < len(want):
		d.add("%s: this host has no address for %s; give one with --node-ip, or one family only with --cluster-cidr and --service-cidr",
			r.clusterCIDR.label(), missing(out, want))
	}
	r.nodeIP.derive(out)
	return out
}

func missing(have []netip.Addr, want []bool) string {
	for _, v6 := range want {
		if !slices.ContainsFunc(have, func(a netip.Addr) bool { return a.Is6() == v6 }) {
			return family(standIn(v6))
		}
	}
	return "all families"
}

// standIn is the node's address on a host that has none but loopback ones, which Kubernetes refuses: addresses
// that are set aside for this (RFC 7600, RFC 9780).
func standIn(v6 bool) netip.Addr {
	if v6 {
		return netip.MustParseAddr("100:0:0:1::8")
	}
	return netip.MustParseAddr("192.0.0.8")
}

// StandIn reports whether a node IP is one that no interface of the host has: the host has loopback addresses
// only. The node half then adds it to lo (/32 or /128) before anything listens, and a route for the service
// ranges over lo, since without any route connecting to a Service fails before kube-proxy sees the packet.
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
	v.derive([]netip.Addr{out})
	return out
}

func (d *decoder) advertise(v *value, node []netip.Addr) netip.Addr {
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
		return netip.Addr{}
	}
	v.derive(node[:1])
	return node[0]
}

// checkOverlaps reports ranges and addresses that collide, naming both settings.
func (d *decoder) checkOverlaps(r *raw, cfg Config) {
	for i, c := range cfg.Network.ClusterCIDRs {
		for _, s := range cfg.Network.ServiceCIDRs {
			if c.Overlaps(s) {
				d.add("%s %s and %s %s overlap; pods and Services need ranges of their own",
					r.clusterCIDR.label(), c, r.serviceCIDR.label(), s)
			}
		}
		d.checkInside(&r.clusterCIDR, c, r, cfg.Node.IPs)
		_ = i
	}
	for _, s := range cfg.Network.ServiceCIDRs {
		d.checkInside(&r.serviceCIDR, s, r, cfg.Node.IPs)
	}
}

func (d *decoder) checkInside(v *value, p netip.Prefix, r *raw, ips []netip.Addr) {
	for _, a := range ips {
		if p.Contains(a) {
			d.add("%s: the node's address %s lies in %s %s; choose another range, or another address",
				r.nodeIP.label(), a, v.label(), p)
		}
	}
}
