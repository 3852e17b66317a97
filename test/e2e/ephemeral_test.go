package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

// TestEphemeral runs a server with --ephemeral and compares the host before with the host after its end: by a signal,
// by a kill and another start, with pods, and by its time to live.
func TestEphemeral(t *testing.T) {
	slots.Take(t)
	h := newFreshHost(t, "solo")
	h.Run("sh", "-c", "rm -rf /var/lib/coracle/[!i]*; nft add table inet foreign; mkdir -p /run/netns")
	h.Coracle("kubectl", "version", "--client") // unpacks the programs for this user; they stay
	before := takeInventory(h)

	for name, end := range map[string]func(*hosts.Server){
		"stopped": func(s *hosts.Server) {
			if err := s.Stop(); err != nil {
				t.Error(err)
			}
		},
		"time to live": func(s *hosts.Server) {
			if err := s.Wait(3 * time.Minute); err != nil {
				t.Errorf("it ended with %v", err)
			}
			if err := contains("log", s.Log(), "as its time to live of 45s is over"); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			args := []string{"--ephemeral"}
			if name == "time to live" {
				args = append(args, "--ttl=45s") // counted from the start, and a slow machine needs most of it for that
			}
			s := h.Start(args...)
			waitReady(t, h)
			if name == "stopped" {
				h.Apply(manifest(t, "workloads.yaml"))
				h.Kubectl("wait", "--for=condition=Available", "deployment/web", "--timeout=3m")
			}
			if fs := strings.TrimSpace(h.Run("stat", "-fc", "%T", "/var/lib/coracle/server", "/var/lib/kubelet/pods")); fs != "tmpfs\ntmpfs" {
				t.Errorf("the state is on %s", fs)
			}
			end(s)
			compareInventory(t, h, before)
		})
	}
	t.Run("killed", func(t *testing.T) { ephemeralKilled(t, h, before) })
	t.Run("refused", func(t *testing.T) { ephemeralRefused(t, h) })
}

// ephemeralKilled kills a server while its pods run. The next start must be a new cluster; reset also removes the rest.
func ephemeralKilled(t *testing.T, h *hosts.Host, before map[string]string) {
	start := func() *hosts.Server {
		s := h.Start("--ephemeral")
		waitReady(t, h)
		return s
	}
	uid := func() string {
		return h.Kubectl("get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}")
	}
	kill := func(s *hosts.Server) {
		if err := syscall.Kill(s.FrontPID(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		_ = s.Wait(time.Minute) // it was killed
	}
	s := start()
	first := uid()
	h.Apply(manifest(t, "workloads.yaml"))
	h.Kubectl("wait", "--for=condition=Available", "deployment/web", "--timeout=3m")
	kill(s)
	s = start()
	if second := uid(); second == first {
		t.Error("the cluster that was killed is there again")
	}
	if out := strings.TrimSpace(h.Kubectl("get", "pods", "-A", "-o", "name")); out != "" {
		t.Errorf("pods of the cluster that was killed: %s", out)
	}
	kill(s)
	h.Coracle("reset", "--yes")
	compareInventory(t, h, before)
}

// ephemeralRefused starts with the data directory of a cluster, which must not be changed.
func ephemeralRefused(t *testing.T, h *hosts.Host) {
	s := h.Start()
	waitReady(t, h)
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	out, err := h.TryCoracle("server", "--ephemeral")
	if err == nil || !strings.Contains(fmt.Sprint(out, err), "/var/lib/coracle has one already") {
		t.Errorf("%v: %s", err, out)
	}
	h.Start()
	waitReady(t, h)
}
