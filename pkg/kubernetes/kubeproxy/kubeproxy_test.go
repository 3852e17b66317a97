package kubeproxy

import (
	"net/netip"
	"testing"

	"github.com/coracle-dev/coracle/test/golden"
)

func TestFlags(t *testing.T) {
	four, six := netip.MustParsePrefix("10.42.0.0/16"), netip.MustParsePrefix("fd42::/48")
	tests := map[string]KubeProxy{
		"default": {Name: "edge-1", IP: netip.MustParseAddr("192.0.2.10"), Kubeconfig: "/k", ClusterCIDRs: []netip.Prefix{four}},
		"dual": {Name: "edge-1", IP: netip.MustParseAddr("2001:db8::1"), Kubeconfig: "/k", ClusterCIDRs: []netip.Prefix{six, four},
			Args: []string{"nodeport-addresses=all", "v=3"}},
	}
	for name, p := range tests {
		t.Run(name, func(t *testing.T) {
			golden.Check(t, "testdata/"+name+".golden", p.flags().String())
		})
	}
}
