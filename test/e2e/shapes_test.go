package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/growth"
	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

// shape is a pod of testdata/shapes.yaml: which namespaces are the host's, and whether it needs a pause container when pods share shims.
type shape struct {
	host  string
	pause bool
}

var shapes = map[string]shape{
	"plain": {}, "net-sysctl": {}, "ipc-sysctl": {pause: true}, "shared-pid": {pause: true}, "host-pid": {host: "pid"}, "host-all": {host: "ipc net pid uts"},
}

// TestSharedShims runs pods that share namespaces in each way with --pod-runtime=shared, where threads hold most of them: no pod gets a
// namespace of the host's or of another pod's, the node finds all of them after it was killed, and nothing is left of them.
func TestSharedShims(t *testing.T) {
	slots.Take(t)
	h := newFreshHost(t, "solo")
	h.CopyImages()
	h.Start("--pod-runtime=shared")
	waitReady(t, h)
	h.Run("mkdir", "-p", "/var/lib/coracle/node/cni") // of the first pod
	before := h.Figures()
	h.Apply(manifest(t, "shapes.yaml"))
	h.Kubectl("wait", "--for=condition=Ready", "pod", "--all", "--timeout=3m")
	owner := map[string]string{} // of each namespace, for all but the host's
	pauses := 0
	for name, shape := range shapes {
		if shape.pause {
			pauses++
		}
		for _, kind := range []string{"ipc", "net", "pid", "uts"} {
			link := "/ns/" + kind
			host := strings.TrimSpace(h.Run("readlink", "/proc/self"+link))
			own := strings.TrimSpace(h.Kubectl("exec", name, "-c", "main", "--", "readlink", "/proc/self"+link))
			switch wanted := strings.Contains(shape.host, kind); {
			case (own == host) != wanted:
				t.Errorf("%s has %s, the host has %s", name, own, host)
			case wanted:
			case owner[own] != "":
				t.Errorf("%s and %s have both %s", name, owner[own], own)
			default:
				owner[own] = name
			}
		}
		if id := strings.TrimSpace(h.Coracle("crictl", "pods", "-q", "--name", name)); h.Coracle("crictl", "inspectp", "--output=go-template", "--template={{.info.pid}}", id) == "0\n" {
			t.Errorf("the sandbox of %s has no pid", name)
		}
	}
	if n := strings.Count(h.Run("pgrep", "-x", "pause"), "\n"); n != pauses {
		t.Errorf("%d pause containers run, not %d", n, pauses)
	}
	for pod, want := range map[string]string{"net-sysctl": "net.ipv4.tcp_keepalive_time = 77", "ipc-sysctl": "kernel.shm_rmid_forced = 1"} {
		name, _, _ := strings.Cut(want, " ")
		if got := strings.TrimSpace(h.Kubectl("exec", pod, "--", "sysctl", name)); got != want {
			t.Errorf("%s has %s", pod, got)
		}
	}
	if out := h.Kubectl("exec", "shared-pid", "-c", "main", "--", "ps"); !strings.Contains(out, "sleep 3601") || strings.Contains(out, "coracle-core") {
		t.Errorf("processes of the pod that shares them: %s", out)
	}
	if host, err := h.Try("sysctl", "-n", "net.ipv4.tcp_keepalive_time"); err != nil || host == "77\n" {
		t.Errorf("the host's sysctl is %s, %v", host, err)
	}
	containers := h.Coracle("crictl", "ps", "-q")
	h.Run("pkill", "-9", "-f", "coracle-core node")
	hosts.Eventually(t, time.Minute, func() error {
		out, err := h.TryCoracle("crictl", "ps", "-q")
		if err == nil && out != containers {
			err = fmt.Errorf("the containers are %q, they were %q", out, containers)
		}
		return err
	})
	hosts.Eventually(t, time.Minute, func() error { // the kubelet learns of its pods
		_, err := h.TryCoracle("kubectl", "exec", "plain", "--", "true")
		return err
	})
	h.Kubectl("delete", "pods", "--all", "--timeout=2m")
	hosts.Eventually(t, time.Minute, func() error {
		after := h.Figures()
		delete(after, "files of data") // containerd removes snapshots later
		if grown := growth.Grown(before, after); len(grown) > 0 {
			return fmt.Errorf("grown: %s", strings.Join(grown, "; "))
		}
		if out, err := h.Try("pgrep", "-f", "containerd-shim-runc-v2.* -id=shared-"); err == nil {
			return fmt.Errorf("shims are left: %s", out)
		}
		return nil
	})
}
