package host

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/footprint"
	"github.com/coracle-dev/coracle/pkg/core/ledger"
)

// EnsureServiceRoutes adds what a machine without a network or a default route lacks: the node's address if it is a
// placeholder, and routes to the Services. Without a route the kernel refuses a connection before kube-proxy's rules see
// the first packet. They are on the interface footprint.ServiceLink, a bridge without ports, because every kernel that
// runs pods has bridges. On other machines it does nothing, except that it removes a placeholder of an earlier start.
func EnsureServiceRoutes(l *ledger.Ledger, node []netip.Addr, services []netip.Prefix) error {
	var addrs []netip.Addr
	for _, a := range node {
		if config.StandIn(a) {
			addrs = append(addrs, a)
		}
	}
	if err := dropStandIns(addrs); err != nil {
		return fmt.Errorf("removing a former address from %s: %w", footprint.ServiceLink, err)
	}
	var unrouted []netip.Prefix
	for _, s := range services {
		if !routed(s.Addr().Next()) {
			unrouted = append(unrouted, s)
		}
	}
	if len(addrs) == 0 && len(unrouted) == 0 {
		return nil
	}
	link, err := ensureLink(l)
	if err != nil {
		return fmt.Errorf("making the interface %s: %w", footprint.ServiceLink, err)
	}
	for _, a := range addrs {
		// Duplicate address detection is pointless here, and an IPv6 address cannot be used until it ends.
		address := &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(a, a.BitLen())), Flags: unix.IFA_F_NODAD}
		if err := netlink.AddrReplace(link, address); err != nil {
			return fmt.Errorf("adding the address %s to %s: %w", a, footprint.ServiceLink, err)
		}
	}
	for _, s := range unrouted {
		route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(s), Src: sourceFor(s, node), Scope: netlink.SCOPE_LINK}
		if err := netlink.RouteReplace(route); err != nil {
			return fmt.Errorf("adding a route to Services (%s) over %s: %w", s, footprint.ServiceLink, err)
		}
	}
	return nil
}

// dropStandIns removes placeholders that are not the node's addresses any more, and with them the routes from them.
func dropStandIns(except []netip.Addr) error {
	link, err := netlink.LinkByName(footprint.ServiceLink)
	if err != nil {
		return nil // there is none
	}
	list, err := netlink.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return err
	}
	for _, a := range list {
		ip, ok := netip.AddrFromSlice(a.IP)
		if ip = ip.Unmap(); !ok || !config.StandIn(ip) || slices.Contains(except, ip) {
			continue
		}
		if err := netlink.AddrDel(link, &a); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return err
		}
	}
	return nil
}

// routed reports whether the kernel has a route to an address that does not lead through ServiceLink.
func routed(a netip.Addr) bool {
	routes, err := netlink.RouteGet(a.AsSlice())
	if err != nil || len(routes) == 0 || routes[0].Type == unix.RTN_UNREACHABLE {
		return false
	}
	link, err := netlink.LinkByName(footprint.ServiceLink)
	return err != nil || routes[0].LinkIndex != link.Attrs().Index
}

func ensureLink(l *ledger.Ledger) (netlink.Link, error) {
	if err := l.Note(ledger.Entry{Kind: ledger.Link, Name: footprint.ServiceLink}); err != nil {
		return nil, err
	}
	err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: footprint.ServiceLink}})
	if err != nil && !errors.Is(err, syscall.EEXIST) {
		return nil, err
	}
	link, err := netlink.LinkByName(footprint.ServiceLink)
	if err != nil {
		return nil, err
	}
	return link, netlink.LinkSetUp(link)
}

// sourceFor returns the node's address of the family of p. Without a source the kernel would not always choose the node's address.
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
