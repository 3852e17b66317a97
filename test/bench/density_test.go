package bench

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/test/hosts"
)

// rest is how long a full server is left alone before it is measured.
const rest = time.Minute

// measureDensity fills one server with idle pods, with each of the ways to start shims.
func measureDensity(t *testing.T, wire *hosts.Wire, r *results) {
	for _, runtime := range []config.PodRuntime{config.ClassicShims, config.SharedShims} {
		measureFull(t, wire, r, string(runtime))
	}
}

func measureFull(t *testing.T, wire *hosts.Wire, r *results, runtime string) {
	const some, most = 60, 110
	h := hosts.New(t, wire, "full", hosts.Options{})
	defer h.Kill()
	h.CopyImages()
	s := h.Start("--pod-runtime=" + runtime)
	h.Coracle("wait", "--timeout", "60s")
	client := h.Client()
	time.Sleep(rest)
	empty := private(t, h)

	began := time.Now()
	deploy(t, client, some)
	podStarts(t, client, some)
	r.add(runtime+": 60 pods at once: last one Running", "s", 0, time.Since(began).Seconds())
	time.Sleep(rest)
	r.add(runtime+": private memory for each of 60 pods", "MB", 0, (private(t, h)-empty)/some)

	h.Coracle("kubectl", "scale", "deployment", "many", "--replicas=110")
	podStarts(t, client, most)
	time.Sleep(rest)
	r.add(runtime+": private memory with 110 pods", "MB", 0, private(t, h))
	r.add(runtime+": shims of 110 pods", "", 0, float64(len(strings.Fields(h.Run("sh", "-c", "pgrep -f containerd-shim-runc || true")))))
	cpu := func() (seconds float64) {
		for _, p := range measureAll(t, s.Processes()) {
			seconds += p.cpu
		}
		return seconds
	}
	used := cpu()
	time.Sleep(rest)
	r.add(runtime+": CPU at idle with 110 pods", "%", 0, (cpu()-used)/rest.Seconds()*100)

	began = time.Now()
	h.Coracle("kubectl", "delete", "deployment", "many")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for left := most; left > 0; time.Sleep(100 * time.Millisecond) {
		pods, err := client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			t.Fatal(err)
		}
		left = len(pods.Items)
	}
	r.add(runtime+": 110 pods deleted: all gone", "s", 0, time.Since(began).Seconds())
}

// private is the private memory of all that is coracle's or its runtime's on a host, in MB.
func private(t *testing.T, h *hosts.Host) (mb float64) {
	t.Helper()
	for process := range strings.SplitSeq(h.Run("sh", "-c", "cat /proc/[0-9]*/status"), "Name:") {
		name, _, _ := strings.Cut(strings.TrimSpace(process), "\n")
		ours := strings.HasPrefix(name, "coracle") || strings.HasPrefix(name, "containerd-shim") || name == "pause"
		if ours && strings.Contains(process, "RssAnon:") {
			mb += number(t, process, "RssAnon:") * 1024 / 1e6
		}
	}
	return mb
}
