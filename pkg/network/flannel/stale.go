package flannel

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// removeStaleRoutes removes routes to the pods of nodes that were deleted while coracle was stopped. Their subnets may be assigned to
// other nodes now, or to this node, whose pods such a route would hide. known are the subnets of the other nodes.
func removeStaleRoutes(clusterCIDRs, known []netip.Prefix) error {
	main := &netlink.Route{Table: unix.RT_TABLE_MAIN}
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, main, netlink.RT_FILTER_TABLE)
	if err != nil {
		return fmt.Errorf("listing routes: %w", err)
	}
	var problems []error
	for _, r := range staleRoutes(routes, clusterCIDRs, known) {
		if err := netlink.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
			problems = append(problems, fmt.Errorf("removing the old route to %s: %w", r.Dst, err))
		}
	}
	return errors.Join(problems...)
}

// staleRoutes returns the routes with a gateway to subnets of the pod network that no other node has. The route to the node's own pods
// has no gateway.
func staleRoutes(routes []netlink.Route, clusterCIDRs, known []netip.Prefix) []netlink.Route {
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
