package pki

import (
	"net/netip"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/config"
	"github.com/coracle-dev/coracle/pkg/paths"
)

// testConfig is a server that keeps everything under a directory of the test's.
func testConfig(t testing.TB) config.Config {
	root := t.TempDir()
	return config.Config{
		Role: config.Server,
		Dirs: paths.Dirs{Data: root + "/data", Run: root + "/run", Config: root + "/etc", Kubelet: root + "/kubelet"},
		Network: config.Network{
			ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16"), netip.MustParsePrefix("fd42::/56")},
			ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.43.0.0/16"), netip.MustParsePrefix("fd43::/112")},
			Domain:       "cluster.local",
		},
		API: config.API{
			Bind: netip.IPv4Unspecified(), Advertise: netip.MustParseAddr("192.0.2.10"), Port: 6443,
			SANs:           []string{"api.example.org", "198.51.100.7"},
			KubeconfigPath: root + "/etc/kubeconfig.yaml", KubeconfigMode: 0o600,
		},
		Node: config.Node{
			Name: "boat-1", IPs: []netip.Addr{netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("2001:db8::10")},
			ExternalIPs: []netip.Addr{netip.MustParseAddr("203.0.113.5")},
		},
	}
}

func ensureAll(t testing.TB, cfg config.Config) {
	t.Helper()
	if err := EnsureServer(cfg); err != nil {
		t.Fatal(err)
	}
	if err := EnsureNode(cfg); err != nil {
		t.Fatal(err)
	}
}

func TestAgain(t *testing.T) {
	cfg := testConfig(t)
	for range 3 {
		start := time.Now()
		ensureAll(t, cfg)
		t.Log(time.Since(start))
	}
}
