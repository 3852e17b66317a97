package flannel

import (
	"fmt"
	"net/netip"

	"github.com/flannel-io/flannel/pkg/ip"
)

// parseSubnets parses the pod CIDRs of a Node.
func parseSubnets(podCIDRs []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, text := range podCIDRs {
		cidr, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("reading the node's pod subnet: %w", err)
		}
		out = append(out, cidr)
	}
	return out, nil
}

// flannelNets returns the subnets in the library's types. The zero value means none.
func flannelNets(subnets []netip.Prefix) (v4 ip.IP4Net, v6 ip.IP6Net) {
	for _, cidr := range subnets {
		std := ipNet(cidr)
		if cidr.Addr().Is4() {
			v4 = ip.FromIPNet(std)
		} else {
			v6 = ip.FromIP6Net(std)
		}
	}
	return v4, v6
}
