package containerd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"

	"github.com/coracle-dev/coracle/test/golden"
)

func example() Containerd {
	return Containerd{
		ConfigFile: "/var/lib/coracle/node/etc/containerd.toml", DropIns: "/etc/coracle/containerd.d",
		Root: "/var/lib/coracle/node/containerd", State: "/run/coracle/containerd/state",
		Socket: "/run/coracle/containerd/containerd.sock", ShimSocket: "/run/coracle/s", Snapshotter: overlay,
		RuncState: "/run/coracle/runc", Runc: "/var/lib/coracle/bin/runc", Shim: "/var/lib/coracle/bin/containerd-shim-runc-v2",
		CNIBin: []string{"/var/lib/coracle/bin/cni", "/opt/cni/bin"}, CNIConf: "/etc/cni/net.d",
		SandboxImage: "coracle.io/pause:3.10.2", Registries: []string{"/etc/coracle/certs.d", "/etc/containerd/certs.d"},
		UnprivilegedPorts: true, UnprivilegedICMP: true,
	}
}

func TestRender(t *testing.T) {
	systemd := example()
	systemd.SystemdCgroup, systemd.AppArmor, systemd.PreferIPv6 = true, true, true
	bare := example()
	bare.Snapshotter, bare.RestrictOOMScore, bare.UnprivilegedICMP, bare.UnprivilegedPorts = native, true, false, false
	bare.NoKeyrings = true
	known := map[string]bool{}
	for name, c := range map[string]Containerd{"default": example(), "systemd": systemd, "bare": bare} {
		t.Run(name, func(t *testing.T) {
			got, err := c.render()
			if err != nil {
				t.Fatal(err)
			}
			golden.Check(t, "testdata/"+name+".golden", got)
			c.ConfigFile, c.DropIns = filepath.Join(t.TempDir(), "containerd.toml"), t.TempDir()
			if _, err := c.write(); err != nil {
				t.Fatal(err)
			}
			config, err := load(t.Context(), c.ConfigFile, c.DropIns)
			if err != nil {
				t.Fatalf("containerd does not understand it: %v", err)
			}
			for _, r := range registry.Graph(func(*plugin.Registration) bool { return false }) {
				known[r.URI()] = true
			}
			for _, id := range config.DisabledPlugins { // upstream renames them
				if !known[id] {
					t.Errorf("containerd has no plugin %s that could be disabled", id)
				}
			}
		})
	}
}

func TestDropIns(t *testing.T) {
	const runtime = `[plugins."io.containerd.cri.v1.runtime"]` + "\n"
	tests := []struct{ name, file, err string }{
		{"merges", "version = 4\n" + runtime + "max_container_log_line_size = 1024\n", ""},
		{"older format", "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\nmax_container_log_line_size = 1024\n", ""},
		{"no version", runtime, "the first line has to be version = 4"},
		{"broken", "version = 4\nroot = \n", "line 2"},
		{"unknown key", "version = 4\nrooot = \"/x\"\n", `containerd knows no setting "rooot"`},
		{"unknown plugin", "version = 4\n[plugins.\"io.containerd.nothing.v1.x\"]\na = 1\n", `containerd has no plugin "io.containerd.nothing.v1.x"`},
		{"unknown setting", "version = 4\n" + runtime + "enable_magic = true\n", `there is no setting "enable_magic"`},
		{"wrong type", "version = 4\n" + runtime + "enable_selinux = \"yes\"\n", "io.containerd.cri.v1.runtime"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := example()
			c.ConfigFile, c.DropIns = filepath.Join(t.TempDir(), "containerd.toml"), t.TempDir()
			dropIn := filepath.Join(c.DropIns, "10-mine.toml")
			if err := os.WriteFile(dropIn, []byte(tt.file), 0o644); err != nil {
				t.Fatal(err)
			}
			if _, err := c.write(); err != nil {
				t.Fatal(err)
			}
			config, err := load(t.Context(), c.ConfigFile, c.DropIns)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) || !strings.Contains(err.Error(), dropIn) {
					t.Fatalf("got error %v, want one that names %s and contains %q", err, dropIn, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			runtime := config.Plugins["io.containerd.cri.v1.runtime"].(map[string]any)
			if got := runtime["max_container_log_line_size"]; got != int64(1024) {
				t.Errorf("the drop-in's value became %v", got)
			}
			cni, ok := runtime["cni"].(map[string]any)
			if !ok || cni["conf_dir"] != "/etc/cni/net.d" {
				t.Errorf("a drop-in for one setting lost our others: %v", runtime)
			}
		})
	}
}
