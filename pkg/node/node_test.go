package node

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/footprint"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/test/golden"
)

func example(t *testing.T) config.Config {
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "data", "node", "etc", "node.kubeconfig") // local storage reads it before it runs
	if err := os.MkdirAll(filepath.Dir(kubeconfig), 0o755); err != nil {
		t.Fatal(err)
	}
	text := "{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: 'https://127.0.0.1:6444'}}], contexts: [{name: c, context: {cluster: c}}], current-context: c}"
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return config.Config{
		Role: config.Server,
		Dirs: paths.Dirs{Data: filepath.Join(dir, "data"), Run: filepath.Join(dir, "run"), Config: "/etc/coracle", Kubelet: "/var/lib/kubelet"},
		Network: config.Network{
			ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")}, ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.43.0.0/16")},
			DNS: []netip.Addr{netip.MustParseAddr("10.43.0.10")}, Domain: "cluster.local", Backend: config.VXLAN,
		},
		Node: config.Node{Name: "edge-1", IPs: []netip.Addr{netip.MustParseAddr("192.0.2.10")}, ResolvConf: "/etc/resolv.conf"},
	}
}

// TestParts writes down what a node is made of, what needs what, and what it leaves outside our directories.
func TestParts(t *testing.T) {
	bare := example(t)
	bare.Disable, bare.Network.Backend = []string{"dns", "kube-proxy"}, config.BackendNone
	drained := example(t)
	drained.DrainOnStop, drained.Network.Backend = true, config.HostGW
	if err := os.MkdirAll(drained.Dirs.StaticPods(), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(drained.Dirs.StaticPods(), "pod.yaml"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	agent := example(t)
	agent.Role = config.Agent
	for name, cfg := range map[string]config.Config{"default": example(t), "bare": bare, "drained": drained, "agent": agent} {
		t.Run(name, func(t *testing.T) {
			if err := os.MkdirAll(filepath.Dir(cfg.Dirs.State(state.Node)), 0o755); err != nil {
				t.Fatal(err)
			}
			g := &lifecycle.Group{}
			if err := (facts{}).add(g, cfg, state.NewRecorder(cfg.Dirs, state.Node, "v0")); err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			for _, u := range g.Status() {
				fmt.Fprintf(&got, "%s <- %s\n", u.Name, strings.Join(u.Needs, ", "))
			}
			for _, e := range footprint.Of(cfg) {
				fmt.Fprintf(&got, "makes %s %s\n", e.Kind, e.Name)
			}
			golden.Check(t, "testdata/"+name+".golden", got.String())
		})
	}
}

func TestSetPath(t *testing.T) {
	dirs := paths.Dirs{Data: "/data"}
	for start, want := range map[string]string{
		"/usr/bin:/bin":                             "/data/bin:/usr/bin:/bin:/data/bin/busybox.d",
		"/data/bin:/usr/bin:/data/bin/busybox.d":    "/data/bin:/usr/bin:/data/bin/busybox.d", // the front has done it
		"/data/bin/busybox.d:/usr/bin:/data/bin:/x": "/data/bin:/usr/bin:/x:/data/bin/busybox.d",
		"": "/data/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/data/bin/busybox.d",
	} {
		t.Setenv("PATH", start)
		if err := setPath(dirs); err != nil {
			t.Fatal(err)
		}
		if got := os.Getenv("PATH"); got != want {
			t.Errorf("%q becomes %q, want %q", start, got, want)
		}
	}
}

func TestContainerdLevel(t *testing.T) {
	tests := []struct {
		log  config.Log
		want logrus.Level
	}{
		{config.Log{Level: "info"}, logrus.WarnLevel},
		{config.Log{Level: "error"}, logrus.ErrorLevel},
		{config.Log{Level: "debug"}, logrus.DebugLevel},
		{config.Log{Level: "info", Levels: map[string]string{"containerd": "info"}}, logrus.InfoLevel},
	}
	for _, tt := range tests {
		if got := containerdLevel(tt.log); got != tt.want {
			t.Errorf("%+v: %s", tt.log, got)
		}
	}
}
