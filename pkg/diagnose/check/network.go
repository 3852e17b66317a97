package check

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/footprint"
)

func address(_ context.Context, m *Machine) []Verdict {
	for _, ip := range m.Config.Node.IPs {
		if config.StandIn(ip) { // the start gives it to the machine
			if m.starting {
				return nil
			}
			return Warnf("give the machine an address, or --node-ip", "this machine has no address by which others reach it; %s stands in for one", ip)
		}
	}
	addrs, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	for try := 0; try < 5 && errors.Is(err, netlink.ErrDumpInterrupted); try++ {
		addrs, err = netlink.AddrList(nil, netlink.FAMILY_ALL) // addresses changed during the last dump
	}
	where := map[netip.Addr]string{}
	for _, a := range addrs {
		if ip, ok := netip.AddrFromSlice(a.IP); ok {
			where[ip.Unmap()] = linkName(a.LinkIndex)
		}
	}
	return judgeAddress(m.Config.Node.IPs, where, err)
}

// linkName returns the name of an interface, or its index if it has just been removed.
func linkName(index int) string {
	link, err := netlink.LinkByIndex(index)
	if err != nil {
		return fmt.Sprintf("interface %d", index)
	}
	return link.Attrs().Name
}

// judgeAddress looks up the node's addresses among those of the interfaces, which are incomplete if err is not nil.
func judgeAddress(ips []netip.Addr, where map[netip.Addr]string, err error) []Verdict {
	var out []Verdict
	var good []string
	for _, ip := range ips {
		if link := where[ip]; link != "" {
			good = append(good, fmt.Sprintf("%s on %s", ip, link))
			continue
		}
		if err != nil {
			return Skipf("the addresses of the interfaces cannot be read: %v", err)
		}
		out = append(out, Failf("choose an address of this machine with --node-ip, or see whether the interface is up",
			"no interface has the node's address %s", ip)...)
	}
	return Else(out, Okf("%s", strings.Join(good, ", ")))
}

// route is one of the machine.
type route struct {
	to   netip.Prefix
	link string
}

func routes(_ context.Context, m *Machine) []Verdict {
	list, err := netlink.RouteList(nil, netlink.FAMILY_ALL)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return Skipf("the routes cannot be read: %v", err)
	}
	var all []route
	for _, r := range list {
		if r.Dst == nil || r.Type != unix.RTN_UNICAST {
			continue
		}
		ip, ok := netip.AddrFromSlice(r.Dst.IP)
		bits, _ := r.Dst.Mask.Size()
		link, err := netlink.LinkByIndex(r.LinkIndex)
		if !ok || bits == 0 || err != nil {
			continue
		}
		if m.Running && r.Gw != nil && m.Config.Network.Backend == config.HostGW {
			continue // coracle's own, to other nodes
		}
		all = append(all, route{netip.PrefixFrom(ip.Unmap(), bits), link.Attrs().Name})
	}
	return judgeRoutes(all, m.Config.Network)
}

func judgeRoutes(all []route, n config.Network) (out []Verdict) {
	for _, r := range all {
		if footprint.IsLink(r.link) {
			continue
		}
		for flag, cidrs := range map[string][]netip.Prefix{"--cluster-cidr": n.ClusterCIDRs, "--service-cidr": n.ServiceCIDRs} {
			for _, c := range cidrs {
				if c.Overlaps(r.to) {
					out = append(out, Failf("choose a network with "+flag+" that is in use nowhere near",
						"the route to %s by %s leads into %s %s: one of the two cannot be reached", r.to, r.link, flag, c)...)
				}
			}
		}
	}
	return Else(out, Okf("none leads into the networks of pods and Services"))
}

// What an overlay adds to each packet, by whether nodes talk IPv6 to each other; and what IPv6 asks of every link.
const (
	vxlan4, vxlan6 = 50, 70
	wireguard      = 80
	leastMTU       = 1280
)

func mtu(_ context.Context, m *Machine) []Verdict {
	n := m.Config.Network
	if n.Backend == config.BackendNone || len(m.Config.Node.IPs) == 0 {
		return Skipf("the pod network is left to another plugin")
	}
	link := m.outside()
	if link == nil {
		return Skipf("no interface has the node's address")
	}
	overhead := 0
	switch {
	case n.Backend == config.VXLAN && m.Config.Node.IPs[0].Is6():
		overhead = vxlan6
	case n.Backend == config.VXLAN:
		overhead = vxlan4
	case n.Backend == config.WireGuard:
		overhead = wireguard
	}
	return judgeMTU(link.Attrs().Name, link.Attrs().MTU, overhead)
}

// outside returns the interface by which other nodes are reached; nil if there is none.
func (m *Machine) outside() netlink.Link {
	if name := m.Config.Network.Iface; name != "" {
		link, _ := netlink.LinkByName(name)
		return link
	}
	addrs, _ := netlink.AddrList(nil, netlink.FAMILY_ALL) // without a list the probe is skipped
	for _, a := range addrs {
		if ip, _ := netip.AddrFromSlice(a.IP); ip.Unmap() == m.Config.Node.IPs[0] {
			link, _ := netlink.LinkByIndex(a.LinkIndex)
			return link
		}
	}
	return nil
}

func judgeMTU(link string, size, overhead int) []Verdict {
	pods := size - overhead
	text := fmt.Sprintf("packets of %s have up to %d bytes, those of pods %d", link, size, pods)
	if pods < leastMTU {
		return Warnf(fmt.Sprintf("ip link set %s mtu %d, if the network carries that, or --flannel-backend=host-gw", link, leastMTU+overhead),
			"%s: IPv6 needs %d, and much software takes that for granted", text, leastMTU)
	}
	return Okf("%s", text)
}

// proxied are the variables that name a proxy.
var proxied = []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"}

func proxy(_ context.Context, m *Machine) []Verdict {
	var set []string
	for _, pair := range m.Environ {
		name, value, _ := strings.Cut(pair, "=")
		if slices.Contains(proxied, name) && value != "" {
			set = append(set, name)
		}
	}
	if set == nil {
		return Okf("none")
	}
	if m.Config.Join.Server != "" {
		return Warnf("make sure that NO_PROXY names the servers and the networks of other nodes",
			"%s is set: images are pulled through the proxy, and what is inside the cluster, as far as it is known here, is not", strings.Join(set, ", "))
	}
	return Okf("%s is set: images are pulled through the proxy, what is inside the cluster is not", strings.Join(set, ", "))
}
