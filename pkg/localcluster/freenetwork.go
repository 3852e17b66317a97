package localcluster

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// errNoFreeNetwork is returned if this machine uses all networks for clusters.
var errNoFreeNetwork = errors.New("no network is free for the nodes: this machine has routes into, or clusters in, all of " +
	clusterNetworks + "; remove a cluster with coracle down")

// clusterNetworks is the range for the networks of clusters, a /24 each.
const clusterNetworks = "10.222.0.0/16"

// freeNetwork returns a network that neither this machine nor another cluster uses.
func freeNetwork(others []Record) (netip.Prefix, error) {
	taken, err := routes()
	if err != nil {
		return netip.Prefix{}, err
	}
	for _, o := range others {
		taken = append(taken, o.Network)
	}
	return firstFree(taken)
}

// firstFree returns the first /24 of clusterNetworks that overlaps none of the taken networks.
func firstFree(taken []netip.Prefix) (netip.Prefix, error) {
	base := netip.MustParsePrefix(clusterNetworks).Addr().As4()
next:
	for i := range 256 {
		base[2] = byte(i)
		p := netip.PrefixFrom(netip.AddrFrom4(base), 24)
		for _, t := range taken {
			if t.Overlaps(p) {
				continue next
			}
		}
		return p, nil
	}
	return netip.Prefix{}, errNoFreeNetwork
}

// routes returns the destinations of this machine's routes, without default routes.
func routes() (out []netip.Prefix, err error) {
	found, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, fmt.Errorf("listing this machine's routes: %w", err)
	}
	for _, r := range found {
		if r.Dst == nil {
			continue
		}
		ip, ok := netip.AddrFromSlice(r.Dst.IP.To4())
		bits, _ := r.Dst.Mask.Size()
		if ok && bits > 0 {
			out = append(out, netip.PrefixFrom(ip, bits))
		}
	}
	return out, nil
}
