package manifests

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/pkg/config"
)

var update = flag.Bool("update", false, "write the golden files")

func network(backend config.Backend, dns ...string) config.Network {
	n := config.Network{Domain: "cluster.local", Backend: backend}
	for _, text := range dns {
		n.DNS = append(n.DNS, netip.MustParseAddr(text))
	}
	return n
}

func TestRender(t *testing.T) {
	for _, tt := range []struct {
		name    string
		network config.Network
	}{
		{"default", network(config.VXLAN, "10.43.0.10")},
		{"dual-stack", network(config.VXLAN, "10.43.0.10", "fd43::a")},
		{"ipv6-own-cni", network(config.BackendNone, "fd43::a")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			files, err := Render(config.Config{Network: tt.network})
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(files, func(f File) bool { return f.Name == "dns.yaml" })
			golden := filepath.Join("testdata", tt.name+".dns.golden")
			if *update {
				if err := os.WriteFile(golden, files[i].Data, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if string(files[i].Data) != string(want) {
				t.Errorf("rendered:\n%s\nwant:\n%s", files[i].Data, want)
			}
		})
	}
}

func TestRenderLeavesOutWhatIsDisabled(t *testing.T) {
	cfg := config.Config{Network: network(config.VXLAN, "10.43.0.10"), Disable: []string{"dns"}}
	files, err := Render(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(files, func(f File) bool { return f.Name == "dns.yaml" }) {
		t.Error("dns.yaml is there")
	}
}

func TestCorefile(t *testing.T) {
	n := network(config.VXLAN, "10.43.0.10")
	n.Domain = "example.internal"
	corefile, err := Corefile(n)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(corefile, "kubernetes example.internal in-addr.arpa") {
		t.Errorf("the Corefile does not know the domain:\n%s", corefile)
	}
}
