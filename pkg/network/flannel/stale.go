package flannel

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// forgetStale removes routes to the pods of nodes that went away while nobody looked: coracle was stopped, but the
// kernel kept them. Such a subnet may be another node's by now, or this one's own, which such a route would hide.
// known are the subnets of the other nodes.
func forgetStale(clusterCIDRs, known []netip.Prefix) error {
	main := &netlink.Route{Table: unix.RT_TABLE_MAIN}
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, main, netlink.RT_FILTER_TABLE)
	if err != nil {
		return fmt.Errorf("listing routes: %w", err)
	}
	var problems []error
	for _, r := range stale(routes, clusterCIDRs, known) {
		if err := netlink.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
			problems = append(problems, fmt.Errorf("removing the old route to %s: %w", r.Dst, err))
		}
	}
	return errors.Join(problems...)
}

// stale are the routes to a part of the pod network, by another machine, that no other node has. The node's own pods
// are reached without a gateway.
func stale(routes []netlink.Route, clusterCIDRs, known []netip.Prefix) []netlink.Route {
	return slices.DeleteFunc(slices.Clone(routes), func(r netlink.Route) bool {
		if r.Dst == nil || r.Gw == nil {
			return true
		}
		bits, _ := r.Dst.Mask.Size()
		addr, _ := netip.AddrFromSlice(r.Dst.IP)
		to := netip.PrefixFrom(addr.Unmap(), bits)
		inside := func(cidr netip.Prefix) bool { return bits > cidr.Bits() && cidr.Contains(to.Addr()) }
		return slices.Contains(known, to) || !slices.ContainsFunc(clusterCIDRs, inside)
	})
}
