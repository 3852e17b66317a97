// Package network is the example of docs/extending/network.md: networks that are not coracle's.
package network

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/cnitool/cmd"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/coracle-dev/coracle/test/extensions/cluster"
)

// TestMain is the test, the plug-in, or cnitool, by the name of the file.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "several":
		skel.PluginMainFuncs(skel.CNIFuncs{Add: add, Del: del, Check: check, GC: gc, Status: status}, version.All, "several: attaches pods to several networks")
		os.Exit(0)
	case "cnitool":
		if err := cmd.Execute(); err != nil {
			os.Exit(1) // it has said why
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestNetwork replaces coracle's network, and attaches pods to a second one.
func TestNetwork(t *testing.T) {
	dir := files(t)
	c := cluster.Start(t, "network", cluster.Options{Config: dir, Images: []string{"busybox"}})
	node := c.Nodes[0].Name
	onNode := []string{os.Getenv("CORACLE"), "up", "exec", c.Name, node, "env", "PATH=" + os.Getenv("PATH") + ":/etc/coracle/cni/bin",
		"NETCONFPATH=/etc/coracle/cni", "CNI_PATH=/var/lib/coracle/bin/cni:/etc/coracle/cni/bin"}
	variables := []string{"CNI=" + filepath.Join(dir, "cni"), "NODE=" + node, "ON_NODE=" + strings.Join(onNode, " ")}
	s := c.Space(t)
	for _, heading := range []string{"Pods and Services", "Bandwidth and tuning", "A second interface", "CHECK and GC", "STATUS"} {
		s.Play(t, heading, variables...)
		if heading == "Bandwidth and tuning" {
			limited(t, s)
		}
	}
}

// files makes the servers' directory of settings: the example's, with the plug-ins.
func files(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(dir, os.DirFS("coracle")); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "cni", "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, from := range map[string]string{"several": self, "cnitool": self, "ptp": cluster.Program(t, "ptp"), "tuning": cluster.Program(t, "tuning")} {
		data, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(bin, name), data, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// limited compares how fast two pods read, when one has used up its burst.
func limited(t *testing.T, s cluster.Space) {
	t.Helper()
	const size = 16e6 // bytes
	read := func(pod string) (rate float64) {
		began := time.Now()
		s.Kubectl(t, "exec", pod, "--", "wget", "-q", "-O", "/dev/null", "http://server/large")
		return size * 8 / 1e6 / time.Since(began).Seconds()
	}
	free, limited := read("free"), read("limited")
	t.Logf("%.1f Mbit/s without a limit, %.1f with one of 16", free, limited)
	if limited < 12 || limited > 18 || free < 3*limited {
		t.Errorf("a pod that is limited to 16 Mbit/s reads %.1f of them, another one %.1f", limited, free)
	}
	s.Kubectl(t, "delete", "-f", "clients.yaml", "-f", "server.yaml")
}
