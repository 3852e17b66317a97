package controlplane

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/kubernetes/leaderelection"
)

// history are the states of the components over time.
type history struct {
	mu    sync.Mutex
	units []lifecycle.Status
	// stopped is when the last of those that need the lead was told to stop.
	stopped time.Time
}

func (h *history) add(units []lifecycle.Status) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, u := range units {
		if u.State == lifecycle.Stopping && h.units[i].State != lifecycle.Stopping {
			h.stopped = time.Now()
		}
	}
	h.units = units
}

// led returns the states of those that need the lead, without repetitions, and when they were told to stop.
func (h *history) led() (states []lifecycle.State, stopped time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, u := range h.units {
		if slices.Contains(u.Needs, "leadership") {
			states = append(states, u.State)
		}
	}
	slices.Sort(states)
	return slices.Compact(states), h.stopped
}

// recordWrites makes the API server record all writes.
func recordWrites(t *testing.T, cfg *config.Config) {
	const policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n" +
		"- {level: Metadata, verbs: [create, update, patch, delete, deletecollection]}\n- {level: None}\n"
	cfg.API.AuditPolicy = filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(cfg.API.AuditPolicy, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(cfg.Dirs.AuditLog()), 0o700); err != nil {
		t.Fatal(err)
	}
}

// write is a line of the audit log.
type write struct {
	Verb       string
	RequestURI string
	UserAgent  string
	User       struct{ Username string }
	Received   time.Time `json:"requestReceivedTimestamp"`
}

// ofLeader reports whether only the server that leads may send it.
func (w write) ofLeader() bool {
	switch {
	case w.User.Username == "system:kube-scheduler", w.User.Username == "system:kube-controller-manager":
		return true
	case strings.HasPrefix(w.User.Username, "system:serviceaccount:kube-system:"):
		return true
	}
	return false
}

func writes(t *testing.T, cfg config.Config) (all []write) {
	t.Helper()
	data, err := os.ReadFile(cfg.Dirs.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		var w write
		if json.Unmarshal(lines.Bytes(), &w) == nil && w.ofLeader() {
			all = append(all, w)
		}
	}
	return all
}

// loseLeads takes the lead away from this server, again and again, while its controllers have work. They stop and write nothing, the
// API goes on, and when the lead is back they work again; and nothing is left of those that were stopped.
func loseLeads(t *testing.T, c *kubernetes.Clientset, cfg config.Config, leader *leaderelection.Leadership, units *history) {
	losses, err := strconv.Atoi(cmp.Or(os.Getenv("CORACLE_TEST_LOSSES"), "3"))
	if err != nil {
		t.Fatal(err)
	}
	if err := leader.Contest(t.Context()); err != nil {
		t.Fatal(err)
	}
	work(t, c)
	type period struct{ from, to time.Time }
	var without []period
	var first, last usage
	for n := range losses + 1 {
		if n > 0 {
			take(t, c, "thief")
			await(t, "an end of the controllers", func(context.Context) bool {
				states, _ := units.led()
				return slices.Equal(states, []lifecycle.State{lifecycle.Standby})
			})
			_, stopped := units.led()
			replicas(t, c, int32(n)) // nobody makes these pods yet
			from := time.Now()
			await(t, "a moment without a lead", func(context.Context) bool { return time.Since(from) > 300*time.Millisecond })
			without = append(without, period{stopped.Add(100 * time.Millisecond), time.Now()})
			if err := c.CoordinationV1().Leases("kube-system").Delete(t.Context(), "coracle-control-plane", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		await(t, "all controllers", func(context.Context) bool {
			states, _ := units.led()
			return slices.Equal(states, []lifecycle.State{lifecycle.Ready})
		})
		await(t, "pods that the scheduler has seen", func(ctx context.Context) bool { return scheduled(ctx, c, max(n, 1)) })
		last = measure()
		t.Logf("after %d losses: %d goroutines, %.1f MB", n, last.goroutines, last.heap)
		if n == 0 {
			first = last
		}
		profile(n)
	}
	if last.goroutines > first.goroutines*105/100 || last.heap > first.heap*1.05 {
		t.Errorf("at first %+v, after %d losses %+v", first, losses, last)
	}
	all := writes(t, cfg)
	if len(all) < 10*losses {
		t.Errorf("only %d writes of the controllers were recorded", len(all))
	}
	for _, w := range all {
		for _, p := range without {
			if w.Received.After(p.from) && w.Received.Before(p.to) {
				t.Errorf("written without the lead, %s after its loss: %+v", w.Received.Sub(p.from), w)
			}
		}
	}
}

// profile writes what is alive to the directory CORACLE_TEST_PROFILES, if it is set.
func profile(n int) {
	dir := os.Getenv("CORACLE_TEST_PROFILES")
	if dir == "" {
		return
	}
	for _, kind := range []string{"heap", "goroutine"} {
		var data bytes.Buffer
		_ = pprof.Lookup(kind).WriteTo(&data, 0)
		_ = os.WriteFile(filepath.Join(dir, kind+"-"+strconv.Itoa(n)), data.Bytes(), 0o600)
	}
}

// take makes another server hold the Lease.
func take(t *testing.T, c *kubernetes.Clientset, server string) {
	t.Helper()
	body := `{"spec":{"holderIdentity":"` + server + `"}}`
	_, err := c.CoordinationV1().Leases("kube-system").Patch(t.Context(), "coracle-control-plane", types.MergePatchType, []byte(body), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// work gives the controllers something to do.
func work(t *testing.T, c *kubernetes.Clientset) {
	t.Helper()
	one, labels := int32(1), map[string]string{"app": "w"}
	_, err := c.AppsV1().Deployments("default").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "w"},
		Spec: appsv1.DeploymentSpec{Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "w", Image: "none"}}},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func replicas(t *testing.T, c *kubernetes.Clientset, n int32) {
	t.Helper()
	body := `{"spec":{"replicas":` + strconv.Itoa(int(n)) + `}}`
	if _, err := c.AppsV1().Deployments("default").Patch(t.Context(), "w", types.MergePatchType, []byte(body), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// scheduled reports whether there are n pods and the scheduler has tried to assign them to a node.
func scheduled(ctx context.Context, c *kubernetes.Clientset, n int) bool {
	pods, err := c.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=w"})
	return err == nil && len(pods.Items) == n && !slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return len(p.Status.Conditions) == 0 })
}

// usage is what the process uses when it rests.
type usage struct {
	goroutines int
	heap       float64 // MB
}

// measure returns the least of some measurements.
func measure() (least usage) {
	for range 10 {
		time.Sleep(200 * time.Millisecond)
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		now := usage{runtime.NumGoroutine(), float64(m.HeapAlloc) / 1e6}
		if least.goroutines == 0 {
			least = now
		}
		least = usage{min(least.goroutines, now.goroutines), min(least.heap, now.heap)}
	}
	return least
}
