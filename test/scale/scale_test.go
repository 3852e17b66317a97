// Package scale loads one server with a thousand nodes and ten thousand pods simulated by kwok, and reports the
// resources used and the API's latency. It is not part of `make test`: scripts/scale builds kwok and runs it.
package scale

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/test/executable"
	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

func TestMain(m *testing.M) { os.Exit(hosts.Main(m)) }

// fake is the label by which kwok selects its nodes.
const fake = "kwok.x-k8s.io/node"

// clients is the number of parallel requests when objects are created.
const clients = 16

func TestScale(t *testing.T) {
	kwok := os.Getenv("CORACLE_KWOK")
	if kwok == "" {
		t.Skip("CORACLE_KWOK names no kwok executable: run scripts/scale")
	}
	slots.Take(t)
	nodes, pods := number("CORACLE_SCALE_NODES", 1000), number("CORACLE_SCALE_PODS", 10000)
	wire := hosts.NewWire(t, netip.MustParsePrefix("172.30.0.0/24"))
	h := hosts.New(t, wire, "scale", hosts.Options{})
	s := h.Start("--cluster-cidr", "10.128.0.0/12") // a /24 for each node
	h.Coracle("wait", "--timeout", "60s")
	pid, err := s.ChildPID(state.ControlPlane)
	if err != nil {
		t.Fatal(err)
	}
	client := h.Client()
	watch := &meter{t: t, pid: pid, client: client}
	watch.report("empty")

	startKwok(t, h, kwok)
	began := time.Now()
	inParallel(t, nodes, func(i int) error { return makeNode(t.Context(), client, i) })
	watch.await(fmt.Sprintf("%d nodes Ready", nodes), func() bool { return countReady(t, client) == nodes })
	fmt.Printf("%d nodes made and Ready after %.1f s\n", nodes, time.Since(began).Seconds())
	watch.report(fmt.Sprintf("%d nodes", nodes))

	began = time.Now()
	inParallel(t, pods, func(i int) error { return makePod(t.Context(), client, i) })
	fmt.Printf("%d pods made after %.1f s\n", pods, time.Since(began).Seconds())
	watch.await(fmt.Sprintf("%d pods Running", pods), func() bool { return countRunning(t, client) == pods })
	fmt.Printf("%d pods Running after %.1f s: %.0f a second\n", pods, time.Since(began).Seconds(), float64(pods)/time.Since(began).Seconds())
	watch.report("just after that")
	time.Sleep(2 * time.Minute) // the steady state is measured
	watch.report(fmt.Sprintf("%d nodes and %d pods, two minutes later", nodes, pods))
	watch.latency()
	fmt.Print(h.Run("sh", "-c", "du -sm /var/lib/coracle/server/etcd | sed 's/$/ (MiB of etcd data)/'"))
}

func number(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

// startKwok runs kwok on the host until the test ends.
func startKwok(t *testing.T, h *hosts.Host, path string) {
	t.Helper()
	for to, from := range map[string]string{"/tmp/kwok": path, "/tmp/stages.yaml": filepath.Join(filepath.Dir(path), "stages.yaml")} {
		data, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := executable.Write(h.Path(to), data); err != nil {
			t.Fatal(err)
		}
	}
	cmd := h.Command("/tmp/kwok", "--kubeconfig=/etc/coracle/kubeconfig.yaml", "--config=/tmp/stages.yaml", "--manage-all-nodes=false",
		"--manage-nodes-with-annotation-selector="+fake+"=fake", "--node-lease-duration-seconds=40")
	log, err := os.Create(h.Path("/tmp/kwok.log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			out, _ := os.ReadFile(h.Path("/tmp/kwok.log"))
			t.Logf("kwok: %s", out[max(0, len(out)-4000):])
		}
	})
}

// inParallel calls do for 0 to n-1, some of them in parallel.
func inParallel(t *testing.T, n int, do func(i int) error) {
	t.Helper()
	var next atomic.Int64
	var all sync.WaitGroup
	var failed atomic.Value
	for range clients {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := do(i); err != nil {
					failed.Store(err)
					return
				}
			}
		})
	}
	all.Wait()
	if err, ok := failed.Load().(error); ok {
		t.Fatal(err)
	}
}

func nodeName(i int) string { return fmt.Sprintf("kwok-%04d", i) }

func makeNode(ctx context.Context, client kubernetes.Interface, i int) error {
	size := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("32"), corev1.ResourceMemory: resource.MustParse("256Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName(i), Annotations: map[string]string{fake: "fake"}, Labels: map[string]string{"type": "kwok"}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: fake, Value: "fake", Effect: corev1.TaintEffectNoSchedule}}},
		Status:     corev1.NodeStatus{Capacity: size, Allocatable: size},
	}
	_, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	return err
}

func makePod(ctx context.Context, client kubernetes.Interface, i int) error {
	none := int64(0)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("p-%05d", i), Labels: map[string]string{"app": fmt.Sprintf("a-%03d", i/100)}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &none,
			NodeSelector:                  map[string]string{"type": "kwok"},
			Tolerations:                   []corev1.Toleration{{Key: fake, Operator: corev1.TolerationOpExists}},
			Containers:                    []corev1.Container{{Name: "c", Image: "fake"}},
		},
	}
	_, err := client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
	return err
}

func countReady(t *testing.T, client kubernetes.Interface) (ready int) {
	list, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: "type=kwok", ResourceVersion: "0"})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range list.Items {
		if slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}) {
			ready++
		}
	}
	return ready
}

func countRunning(t *testing.T, client kubernetes.Interface) (running int) {
	list, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list.Items {
		if p.Status.Phase == corev1.PodRunning {
			running++
		}
	}
	return running
}

// meter measures the control plane from outside.
type meter struct {
	t      *testing.T
	pid    int
	client kubernetes.Interface

	cpu  float64
	when time.Time
}

// await polls rarely, because each poll loads the server too.
func (m *meter) await(what string, done func() bool) {
	m.t.Helper()
	for end := time.Now().Add(10 * time.Minute); !done(); time.Sleep(2 * time.Second) {
		if time.Now().After(end) {
			m.t.Fatalf("never: %s", what)
		}
	}
}

// report prints the private memory, and the processor time used since the last report.
func (m *meter) report(when string) {
	m.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.pid))
	if err != nil {
		m.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "RssAnon:")
	kb, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
	if err != nil {
		m.t.Fatal(err)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", m.pid))
	if err != nil {
		m.t.Fatal(err)
	}
	_, rest, _ = strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	cpu, now := (user+system)/100, time.Now()
	if m.when.IsZero() {
		m.when, m.cpu = now, cpu
	}
	fmt.Printf("%s: control plane %.0f MB private, %.1f %% of a core since the last look\n", when, kb/1e3, 100*(cpu-m.cpu)/max(1, now.Sub(m.when).Seconds()))
	m.when, m.cpu = now, cpu
}

// latency makes requests one after the other, like a person, and prints how long the answers took.
func (m *meter) latency() {
	m.t.Helper()
	ctx := m.t.Context()
	label := func(i int) metav1.ListOptions {
		return metav1.ListOptions{LabelSelector: fmt.Sprintf("app=a-%03d", i%100)}
	}
	for _, q := range []struct {
		what string
		n    int
		do   func(i int) error
	}{
		{"get a pod", 500, func(i int) error {
			_, err := m.client.CoreV1().Pods("default").Get(ctx, fmt.Sprintf("p-%05d", i), metav1.GetOptions{})
			return err
		}},
		{"list 100 of the pods by label", 100, func(i int) error {
			_, err := m.client.CoreV1().Pods("default").List(ctx, label(i))
			return err
		}},
		{"list all pods", 10, func(int) error {
			_, err := m.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
			return err
		}},
		{"create a ConfigMap", 300, func(i int) error {
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("m-%d", i)}}
			_, err := m.client.CoreV1().ConfigMaps("default").Create(ctx, cm, metav1.CreateOptions{})
			return err
		}},
	} {
		var took []time.Duration
		for i := range q.n {
			began := time.Now()
			if err := q.do(i); err != nil {
				m.t.Errorf("%s: %v", q.what, err)
				break
			}
			took = append(took, time.Since(began))
		}
		if len(took) > 0 {
			slices.Sort(took)
			fmt.Printf("%s: p50 %.1f ms, p99 %.1f ms (%d)\n", q.what, ms(took[len(took)/2]), ms(took[len(took)*99/100]), len(took))
		}
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
