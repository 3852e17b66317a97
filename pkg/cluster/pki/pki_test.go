package pki

import (
	"crypto/x509"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/test/golden"
)

// testConfig is a server that keeps everything under a directory of the test's.
func testConfig(t testing.TB) config.Config { return configIn(t.TempDir()) }

func configIn(root string) config.Config {
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

// usageNames are for people.
func usageNames(all []x509.ExtKeyUsage) string {
	var names []string
	for _, u := range all {
		names = append(names, map[x509.ExtKeyUsage]string{x509.ExtKeyUsageClientAuth: "client", x509.ExtKeyUsageServerAuth: "server"}[u])
	}
	return strings.Join(names, ", ")
}

func ensure(cfg config.Config) error {
	_, err := EnsureServer(cfg)
	return err
}

func ensureAll(t testing.TB, cfg config.Config) {
	t.Helper()
	if err := ensure(cfg); err != nil {
		t.Fatal(err)
	}
}

// TestTable keeps the whole table with what it comes to under one configuration in a golden file.
func TestTable(t *testing.T) {
	cfg := configIn("/test")
	var out strings.Builder
	for _, a := range authorities {
		fmt.Fprintf(&out, "%s\n  CN %s\n  for %s\n  files %s %s\n", a.Name, a.CN, a.Use, a.certFile(cfg.Dirs), a.keyFile(cfg.Dirs))
	}
	for _, l := range allLeaves() {
		w := l.desired(cfg)
		fmt.Fprintf(&out, "%s\n  signed by %s\n  CN %s\n", l.Name, l.CA.Name, w.CN)
		if l.Group != "" {
			fmt.Fprintf(&out, "  O %s\n", l.Group)
		}
		fmt.Fprintf(&out, "  usage %s\n", usageNames(l.Usage))
		for _, name := range w.SANs.DNS {
			fmt.Fprintf(&out, "  DNS %s\n", name)
		}
		for _, ip := range w.SANs.IPs {
			fmt.Fprintf(&out, "  IP %s\n", ip)
		}
		fmt.Fprintf(&out, "  for %s\n  files %s %s\n", l.Use, l.certFile(cfg.Dirs), l.keyFile(cfg.Dirs))
	}
	golden.Check(t, "testdata/certificates.txt", out.String())
}

// TestDocs keeps the table in docs/security.md in step with the one in the code.
func TestDocs(t *testing.T) {
	const path, begin, end = "../../../docs/security.md", "<!-- certificates: begin -->\n", "<!-- certificates: end -->"
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(data), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s lacks the marks %q and %q", path, begin, end)
	}
	golden.Check(t, path, before+begin+markdown()+end+after)
}

func markdown() string {
	var out strings.Builder
	out.WriteString("| name | signed by | common name (user) | organization (group) | for | use |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, a := range authorities {
		fmt.Fprintf(&out, "| `%s` | itself | `%s` | | authority | %s |\n", a.Name, a.CN, a.Use)
	}
	for _, l := range allLeaves() {
		group := ""
		if l.Group != "" {
			group = "`" + l.Group + "`"
		}
		cn := strings.ReplaceAll(l.CN, nodeName, "NODE")
		fmt.Fprintf(&out, "| `%s` | `%s` | `%s` | %s | %s | %s |\n", l.Name, l.CA.Name, cn, group, usageNames(l.Usage), l.Use)
	}
	return out.String()
}

// snapshot reads every regular file under the data directory, by relative name.
func snapshot(t *testing.T, cfg config.Config) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(cfg.Dirs.Data, func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		rel, _ := filepath.Rel(cfg.Dirs.Data, path)
		files[rel] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func BenchmarkFirstStart(b *testing.B) {
	for b.Loop() {
		ensureAll(b, testConfig(b))
	}
}

func BenchmarkNothingToDo(b *testing.B) {
	cfg := testConfig(b)
	ensureAll(b, cfg)
	for b.Loop() {
		ensureAll(b, cfg)
	}
}
