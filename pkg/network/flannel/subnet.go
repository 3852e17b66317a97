package flannel

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/flannel-io/flannel/pkg/ip"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
)

// podSubnet is this node's part of the pod network. The CNI plugin reads it as a file.
type podSubnet struct {
	PodCIDRs     []netip.Prefix `json:"podCIDRs"`
	MTU          int            `json:"mtu"`
	ClusterCIDRs []netip.Prefix `json:"clusterCIDRs"`
}

// gateway is the node's own address in one of its subnets: the first.
func gateway(subnet netip.Prefix) netip.Prefix {
	return netip.PrefixFrom(subnet.Masked().Addr().Next(), subnet.Bits())
}

// parseSubnets reads a Node's subnets.
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

// flannelNets returns the subnets as the library has them; the zero values are none.
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

// write makes the subnet known to the CNI plugin. Nothing is written if the file says the same already: the plugin
// watches it.
func (s podSubnet) write(file string) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	data = append(data, '\n')
	if have, err := os.ReadFile(file); err == nil && string(have) == string(data) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	if err := atomicfile.Write(file, data, 0o644); err != nil {
		return fmt.Errorf("writing the node's pod subnet: %w", err)
	}
	return nil
}
