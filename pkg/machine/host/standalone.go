package host

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/footprint"
	"github.com/coracle-dev/coracle/pkg/core/ledger"
)

// Standalone makes up for what a machine without a network, or without a default route, lacks: the node's address
// if it is a stand-in, and routes to the Services. The kernel refuses to connect to an address that it has no route
// to before kube-proxy's rules see the first packet. On other machines it does nothing.
func Standalone(l *ledger.Ledger, node []netip.Addr, services []netip.Prefix) error {
	var addrs []netip.Addr
	for _, a := range node {
		if config.StandIn(a) {
			addrs = append(addrs, a)
		}
	}
	var lost []netip.Prefix
	for _, s := range services {
		if !routed(s.Addr().Next()) {
			lost = append(lost, s)
		}
	}
	if len(addrs) == 0 && len(lost) == 0 {
		return nil
	}
	link, err := ensureAnchor(l)
	if err != nil {
		return fmt.Errorf("making the interface %s: %w", footprint.Standalone, err)
	}
	for _, a := range addrs {
		// No duplicate is looked for, as nobody is there; an IPv6 address could not be used before that ends.
		address := &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(a, a.BitLen())), Flags: unix.IFA_F_NODAD}
		if err := netlink.AddrReplace(link, address); err != nil {
			return fmt.Errorf("adding the address %s to %s: %w", a, footprint.Standalone, err)
		}
	}
	for _, s := range lost {
		route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(s), Src: sourceFor(s, node), Scope: netlink.SCOPE_LINK}
		if err := netlink.RouteReplace(route); err != nil {
			return fmt.Errorf("adding a route to Services (%s) over %s: %w", s, footprint.Standalone, err)
		}
	}
	return nil
}

// routed reports whether the kernel knows a way to an address, other than one of ours.
func routed(a netip.Addr) bool {
	routes, err := netlink.RouteGet(a.AsSlice())
	if err != nil || len(routes) == 0 || routes[0].Type == unix.RTN_UNREACHABLE {
		return false
	}
	link, err := netlink.LinkByName(footprint.Standalone)
	return err != nil || routes[0].LinkIndex != link.Attrs().Index
}

func ensureAnchor(l *ledger.Ledger) (netlink.Link, error) {
	if err := l.Note(ledger.Entry{Kind: ledger.Link, Name: footprint.Standalone}); err != nil {
		return nil, err
	}
	err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: footprint.Standalone}})
	if err != nil && !errors.Is(err, syscall.EEXIST) {
		return nil, err
	}
	link, err := netlink.LinkByName(footprint.Standalone)
	if err != nil {
		return nil, err
	}
	return link, netlink.LinkSetUp(link)
}

// sourceFor is the node's address of the family of a range. The kernel would pick one by itself, not always the node's.
func sourceFor(p netip.Prefix, node []netip.Addr) net.IP {
	for _, a := range node {
		if a.Is4() == p.Addr().Is4() {
			return a.AsSlice()
		}
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
