package kubeproxy

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files")

func TestFlags(t *testing.T) {
	four, six := netip.MustParsePrefix("10.42.0.0/16"), netip.MustParsePrefix("fd42::/48")
	tests := map[string]KubeProxy{
		"default": {Name: "edge-1", IP: netip.MustParseAddr("192.0.2.10"), Kubeconfig: "/k", ClusterCIDRs: []netip.Prefix{four}},
		"dual": {Name: "edge-1", IP: netip.MustParseAddr("2001:db8::1"), Kubeconfig: "/k", ClusterCIDRs: []netip.Prefix{six, four},
			Args: []string{"nodeport-addresses=all", "v=3"}},
	}
	for name, p := range tests {
		t.Run(name, func(t *testing.T) {
			file, got := filepath.Join("testdata", name+".golden"), p.flags().String()
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("%s differs; run with -update and look at the difference:\n%s", file, got)
			}
		})
	}
}
