package manifests

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/coracle-dev/coracle/pkg/addons/localstorage/localpath"
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

// TestLocalStorage: the path comes as JSON inside of YAML, whatever is in it.
func TestLocalStorage(t *testing.T) {
	files, err := Render(config.Config{Network: network(config.VXLAN, "10.43.0.10"), API: config.API{LocalStorage: `/srv/"my" disk`}})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(files, func(f File) bool { return f.Name == "local-storage.yaml" })
	for doc := range strings.SplitSeq(string(files[i].Data), "\n---\n") {
		var object struct{ Data map[string]string }
		if err := yaml.Unmarshal([]byte(doc), &object); err != nil {
			t.Fatal(err)
		}
		text, ok := object.Data[localpath.ConfigKey]
		if !ok {
			continue
		}
		paths, err := localpath.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if places, err := paths.Places("any", "local-path"); err != nil || len(places.Paths) != 1 || places.Paths[0] != `/srv/"my" disk` {
			t.Errorf("places are %v, %v", places, err)
		}
		return
	}
	t.Error("there is no configuration")
}
