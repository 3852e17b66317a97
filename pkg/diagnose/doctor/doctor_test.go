package doctor

import (
	"os"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/diagnose/check"
)

// TestDocumented finds names without a section in the document that all reports point to, and sections without a name.
func TestDocumented(t *testing.T) {
	data, err := os.ReadFile("../../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, name := range Names(nil) {
		if known[name] {
			t.Errorf("there are two checks %s", name)
		}
		known[name] = true
		if !strings.Contains(string(data), "| `"+name+"` |") {
			t.Errorf("docs/troubleshooting.md has no row for %s", name)
		}
	}
	for line := range strings.Lines(string(data)) {
		if name, ok := strings.CutPrefix(line, "| `"); ok {
			if name, _, _ = strings.Cut(name, "`"); !known[name] {
				t.Errorf("docs/troubleshooting.md has a row for %s, which is no check", name)
			}
		}
	}
}

// TestNothing looks at a machine without any coracle: what needs one is skipped, and nothing fails by itself.
func TestNothing(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, without whom all is skipped")
	}
	dir := t.TempDir()
	d := &Doctor{Config: config.Config{Role: config.Server, Dirs: paths.Dirs{Data: dir, Run: dir, Config: dir, Kubelet: dir}}}
	probes, err := check.Only(d.Probes(), []string{"processes", "components", "restarts", "certificates", "etcd", "api", "servers", "dns", "kubelet",
		"container-runtime", "images", "services", "pod-network", "nodes", "leases", "pods", "manifests", "node-access", "tunnels", "clock-skew", "dns-loop"})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range check.Run(t.Context(), probes, check.Limit{Answer: Limit}).Rows {
		if (row.Name == "processes") != (row.Result == check.Fail) {
			t.Errorf("%s %s: %s", row.Result, row.Name, row.Finding)
		}
	}
	d.OnlyNode, d.Config.Role = true, config.Agent
	for _, p := range d.Probes() {
		if p.Name == "pod-network" || p.Name == "leases" {
			t.Errorf("%s is about other nodes", p.Name)
		}
	}
}
