package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	nri "github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

// otherRuntimes switches NRI on and adds a runtime whose shim is none of coracle's.
const otherRuntimes = `version = 4
[plugins."io.containerd.nri.v1.nri"]
  disable = false
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.foreign]
  runtime_type = "io.containerd.foreign.v1"
`

// pods is a plugin of NRI that keeps the pids of pods' sandboxes, by name.
type pods struct {
	mu   sync.Mutex
	pids map[string]uint32
}

func (p *pods) RunPodSandbox(_ context.Context, pod *nri.PodSandbox) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pids[pod.GetName()] = pod.GetPid()
	return nil
}

// TestOtherRuntimes runs a pod with a RuntimeClass whose shim is another binary, as those of gVisor and Kata are, beside one that shares a shim. A plugin of NRI
// sees both, each with a pid that leads to its network.
func TestOtherRuntimes(t *testing.T) {
	slots.Take(t)
	if page, err := os.ReadFile("../../docs/extending/runtimes.md"); err != nil || !strings.Contains(string(page), "```toml\n"+otherRuntimes+"```\n") {
		t.Errorf("docs/extending/runtimes.md shows another file than the one that is tested (%v)", err)
	}
	h := newFreshHost(t, "solo")
	h.CopyImages()
	h.Run("sh", "-c", "mkdir -p /etc/coracle/containerd.d && cat >/etc/coracle/containerd.d/50-test.toml <<'END'\n"+otherRuntimes+"END")
	h.Start("--pod-runtime=shared")
	waitReady(t, h)
	node := strings.TrimSpace(h.Run("pgrep", "-f", "coracle-core node"))
	tools := filepath.Dir(strings.TrimSpace(h.Run("readlink", "/proc/"+node+"/exe")))
	h.Run("cp", filepath.Join(tools, "containerd-shim-runc-v2"), "/usr/local/bin/containerd-shim-foreign-v1")
	h.Run("ln", "-s", filepath.Join(tools, "runc"), "/usr/local/bin/runc")

	seen := &pods{pids: map[string]uint32{}}
	plugin, err := stub.New(seen, stub.WithPluginName("test"), stub.WithPluginIdx("10"), stub.WithSocketPath(h.Path("/run/nri/nri.sock")))
	if err != nil {
		t.Fatal(err)
	}
	if err := plugin.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer plugin.Stop()

	h.Apply(manifest(t, "runtimes.yaml"))
	h.Kubectl("wait", "--for=condition=Ready", "pod", "--all", "--timeout=2m")
	if n := strings.Count(h.Run("pgrep", "-f", "containerd-shim-foreign-v1 .* -id"), "\n"); n != 1 {
		t.Errorf("%d foreign shims run", n)
	}
	for _, pod := range []string{"own", "foreign"} {
		seen.mu.Lock()
		pid := seen.pids[pod]
		seen.mu.Unlock()
		network := strings.TrimSpace(h.Kubectl("exec", pod, "--", "readlink", "/proc/self/ns/net"))
		if got := strings.TrimSpace(h.Run("readlink", fmt.Sprintf("/proc/%d/ns/net", pid))); got != network {
			t.Errorf("the plugin's pid %d of the pod %s leads to %s, not %s", pid, pod, got, network)
		}
		hosts.Eventually(t, 10*time.Second, func() error {
			out, err := h.TryCoracle("kubectl", "logs", pod)
			if err == nil && out != pod+"\n" {
				err = fmt.Errorf("the log of %s is %q", pod, out)
			}
			return err
		})
		id := strings.TrimSpace(h.Coracle("crictl", "ps", "-q", "--label=io.kubernetes.pod.name="+pod))
		var answer struct {
			Stats []struct {
				Memory struct{ WorkingSetBytes struct{ Value string } }
			}
		}
		out := h.Coracle("crictl", "stats", "-o", "json", id)
		if err := json.Unmarshal([]byte(out), &answer); err != nil || len(answer.Stats) != 1 || strings.Trim(answer.Stats[0].Memory.WorkingSetBytes.Value, "0") == "" {
			t.Errorf("the statistics of %s: %v, %s", pod, err, out)
		}
	}
	h.Kubectl("delete", "pods", "--all", "--timeout=1m")
	hosts.Eventually(t, time.Minute, func() error {
		if out, err := h.Try("pgrep", "-f", "containerd-shim-.* -id"); err == nil {
			return fmt.Errorf("shims are left: %s", out)
		}
		return nil
	})
}
