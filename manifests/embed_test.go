package manifests

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/test/golden"
)

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
			golden.Check(t, "testdata/"+tt.name+".dns.golden", files[i].Data)
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

// TestRenderForACME: user system:coracle may read and change Secrets only where certificates are had by ACME.
func TestRenderForACME(t *testing.T) {
	for _, c := range []struct {
		email    string
		disabled []string
		want     bool
	}{{"", nil, false}, {"ops@example.com", nil, true}, {"ops@example.com", []string{"gateway"}, false}} {
		files, err := Render(config.Config{Network: network(config.VXLAN, "10.43.0.10"), ACME: config.ACME{Email: c.email}, Disable: c.disabled})
		if err != nil {
			t.Fatal(err)
		}
		if got := slices.ContainsFunc(files, func(f File) bool { return f.Name == "gateway-acme.yaml" }); got != c.want {
			t.Errorf("%+v: gateway-acme.yaml is there: %v", c, got)
		}
	}
}

func TestRenderForProfile(t *testing.T) {
	for profile, want := range map[config.Profile]bool{config.ProfileStandard: false, config.ProfileCIS: true} {
		files, err := Render(config.Config{Network: network(config.VXLAN, "10.43.0.10"), Security: config.Security{Profile: profile}})
		if err != nil {
			t.Fatal(err)
		}
		if got := slices.ContainsFunc(files, func(f File) bool { return f.Name == "cis.yaml" }); got != want {
			t.Errorf("%s: cis.yaml is there: %v", profile, got)
		}
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
