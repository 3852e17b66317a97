package containerd

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"github.com/coracle-dev/coracle/pkg/runtime/handlers"
	"github.com/coracle-dev/coracle/test/golden"
)

// TestFound is the configuration of a machine that has all runtimes. A drop-in has replaced one of them.
func TestFound(t *testing.T) {
	c := example()
	c.SystemdCgroup, c.NoKeyrings = true, true
	c.ConfigFile, c.DropIns = filepath.Join(t.TempDir(), "containerd.toml"), t.TempDir()
	const own = "version = 4\n[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.nvidia]\nruntime_type = \"io.containerd.own.v1\"\n"
	if err := os.WriteFile(filepath.Join(c.DropIns, "10-mine.toml"), []byte(own), 0o644); err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	for _, h := range handlers.Known() {
		if err := os.MkdirAll(filepath.Join(root, "usr/bin"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, "usr/bin", h.Program), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	found, err := handlers.Find(root)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.write(); err != nil {
		t.Fatal(err)
	}
	config, err := load(t.Context(), c.ConfigFile, c.DropIns)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.addFound(config, found); err != nil {
		t.Fatal(err)
	}
	runtimes := config.Plugins["io.containerd.cri.v1.runtime"].(map[string]any)["containerd"].(map[string]any)["runtimes"]
	text, err := toml.Marshal(runtimes)
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "testdata/found.golden", text)
	whole, err := toml.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.ConfigFile, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := load(t.Context(), c.ConfigFile, t.TempDir()); err != nil {
		t.Errorf("containerd does not understand it: %v", err)
	}
}
