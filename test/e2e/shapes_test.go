package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/config"
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
	"plain": {}, "sidecar": {}, "net-sysctl": {}, "ipc-sysctl": {pause: true}, "shared-pid": {pause: true}, "own-users": {pause: true},
	"host-pid": {host: "pid"}, "host-all": {host: "ipc net pid uts"},
}

// TestShapesOfPods runs pods that share namespaces in each way. With --pod-runtime=shared threads hold most of them: no pod gets a namespace of the host's or of
// another pod's, the node finds all of them after it was killed, and nothing is left of them.
func TestShapesOfPods(t *testing.T) {
	t.Parallel()
	for _, runtime := range []config.PodRuntime{config.SharedShims, config.ClassicShims} {
		t.Run(string(runtime), func(t *testing.T) {
			slots.Take(t)
			shapesOfPods(t, runtime)
		})
	}
}

func shapesOfPods(t *testing.T, runtime config.PodRuntime) {
	h := newFreshHost(t, "solo")
	h.CopyImages()
	h.Start("--pod-runtime=" + string(runtime))
	waitReady(t, h)
	h.Run("mkdir", "-p", "/var/lib/coracle/node/cni") // of the first pod
	hosts.Eventually(t, time.Minute, func() error {
		_, err := h.Try("test", "-e", "/run/coracle/copies/node/servers.json") // written as soon as the node may read the list of servers
		return err
	})
	before := h.Figures()
	h.Apply(manifest(t, "shapes.yaml"))
	h.Kubectl("wait", "--for=condition=Ready", "pod", "--all", "--timeout=3m")
	owner := map[string]string{} // of each namespace, for all but the host's
	pauses := 0
	for name, shape := range shapes {
		if shape.pause || runtime == config.ClassicShims {
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
	wanted := 1
	if runtime == config.ClassicShims {
		wanted = len(shapes)
	}
	hosts.Eventually(t, 10*time.Second, func() error { // containerd also executes the program to start a shim
		if shims := strings.Count(h.Run("pgrep", "-f", "containerd-shim-runc-v2.* -id"), "\n"); shims != wanted {
			return fmt.Errorf("%d shims run, not %d", shims, wanted)
		}
		return nil
	})
	if users := strings.Fields(h.Kubectl("exec", "own-users", "--", "cat", "/proc/self/uid_map")); len(users) != 3 || users[1] == "0" {
		t.Errorf("the users of the pod that has its own are %v", users)
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
	h.Kubectl("debug", "plain", "--image=coracle.test/busybox:1", "--target=main", "--container=debugger", "--", "sleep", "3603")
	hosts.Eventually(t, time.Minute, func() error {
		out, err := h.TryCoracle("kubectl", "exec", "plain", "-c", "debugger", "--", "ps")
		if err == nil && (!strings.Contains(out, "sleep 3600") || strings.Contains(out, "coracle-core")) {
			err = fmt.Errorf("the debugger of a container sees these processes: %s", out)
		}
		return err
	})
	h.Apply(manifest(t, "bad-sysctl.yaml"))
	hosts.Eventually(t, time.Minute, func() error {
		out, err := h.TryCoracle("kubectl", "get", "events", "--field-selector=involvedObject.name=bad-sysctl,reason=FailedCreatePodSandBox")
		if err == nil && !strings.Contains(out, "tcp_keepalive_time") {
			err = fmt.Errorf("events of a pod with a bad sysctl: %s", out)
		}
		return err
	})
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
		removeEnded(h)
		after := h.Figures()
		delete(after, "files of data")         // containerd removes snapshots later
		delete(after, "files of logs of pods") // the kubelet removes them once a minute
		if grown := growth.Grown(before, after); len(grown) > 0 {
			return fmt.Errorf("grown: %s", strings.Join(grown, "; "))
		}
		if out, err := h.Try("pgrep", "-f", "containerd-shim-runc-v2.* -id"); err == nil {
			return fmt.Errorf("shims are left: %s", out)
		}
		return nil
	})
}
