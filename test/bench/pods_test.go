package bench

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-dev/coracle/test/hosts"
)

// startApp creates a pod as soon as the API accepts it. The returned function waits until the pod reports that it runs
// and that it has resolved a Service's name, and returns the times.
func startApp(t *testing.T, h *hosts.Host) func() (running, resolved time.Time) {
	t.Helper()
	directory := corev1.HostPathDirectoryOrCreate
	app := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "app"},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64),
			Containers: []corev1.Container{{
				Name: "app", Image: "coracle.test/busybox:1",
				Command:      []string{"sh", "-c", "touch /said/running; until nslookup kubernetes.default.svc.cluster.local; do usleep 20000; done; touch /said/resolved; sleep 36000"},
				VolumeMounts: []corev1.VolumeMount{{Name: "said", MountPath: "/said"}},
			}},
			Volumes: []corev1.Volume{{Name: "said", VolumeSource: corev1.VolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: "/tmp/said", Type: &directory},
			}}},
		},
	}
	created := make(chan error, 1)
	go func() { created <- create(t.Context(), h, app) }()
	return func() (running, resolved time.Time) {
		if err := <-created; err != nil {
			t.Fatal(err)
		}
		return appeared(t, h.Path("/tmp/said/running")), appeared(t, h.Path("/tmp/said/resolved"))
	}
}

// create creates the pod as soon as there is a kubeconfig and the API accepts it.
func create(ctx context.Context, h *hosts.Host, pod *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		err := func() error {
			if _, err := os.Stat(h.Path("/etc/coracle/kubeconfig.yaml")); err != nil {
				return err
			}
			_, err := h.Client().CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
			return err
		}()
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// appeared waits for a file and returns its time of change.
func appeared(t *testing.T, path string) time.Time {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		info, err := os.Stat(path)
		if err == nil {
			return info.ModTime()
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// measureManyPods starts 100 pods at once.
func measureManyPods(t *testing.T, wire *hosts.Wire, r *results) {
	h := hosts.New(t, wire, "many", hosts.Options{})
	h.CopyImages()
	start(t, h)
	client := h.Client()

	const count = 100
	began := time.Now()
	deploy(t, client, count)
	seconds := podStarts(t, client, count)
	r.add("100 pods at once: last one Running", "s", 0, time.Since(began).Seconds())
	r.add("100 pods at once: start of one pod, p50", "s", 0, seconds[count/2])
	r.add("100 pods at once: start of one pod, p99", "s", 0, seconds[count-2])
	h.Kill()

	h = hosts.New(t, wire, "single", hosts.Options{})
	h.CopyImages()
	start(t, h)
	client = h.Client()
	var singles []float64
	for i := range 20 {
		began := time.Now()
		name := fmt.Sprint("single-", i)
		_, err := client.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "many"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "coracle.test/busybox:1", Command: []string{"sleep", "36000"}}}},
		}, metav1.CreateOptions{})
		if err != nil {
			// Admission needs the default service account, which is created shortly after Ready.
			t.Fatal(err)
		}
		podStarts(t, client, i+1)
		singles = append(singles, time.Since(began).Seconds())
	}
	slices.Sort(singles)
	r.add("one pod after the other: start, p50", "s", 0, singles[len(singles)/2])
	r.add("one pod after the other: start, p99", "s", 0, singles[len(singles)-1])
}

// deploy creates a Deployment of idle pods.
func deploy(t *testing.T, client kubernetes.Interface, count int32) {
	t.Helper()
	_, err := client.AppsV1().Deployments("default").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "many"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &count,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "many"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "many"}},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: new(int64),
					Containers:                    []corev1.Container{{Name: "main", Image: "coracle.test/busybox:1", Command: []string{"sleep", "36000"}}},
				},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// podStarts waits until count pods run. It returns how long each took from its creation, which the API records with
// seconds, until the watch showed that it runs, in ascending order.
func podStarts(t *testing.T, client kubernetes.Interface, count int) []float64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	seen, running := map[string]time.Time{}, map[string]float64{}
	for ctx.Err() == nil {
		watch, err := client.CoreV1().Pods("default").Watch(ctx, metav1.ListOptions{LabelSelector: "app=many"})
		if err != nil {
			t.Fatal(err)
		}
		for event := range watch.ResultChan() {
			pod, ok := event.Object.(*corev1.Pod)
			if !ok {
				t.Logf("watching again: %v", event.Object)
				break
			}
			if _, ok := seen[pod.Name]; !ok {
				seen[pod.Name] = time.Now()
			}
			if _, ok := running[pod.Name]; !ok && pod.Status.Phase == corev1.PodRunning {
				running[pod.Name] = time.Since(seen[pod.Name]).Seconds()
			}
			if len(running) == count {
				watch.Stop()
				return slices.Sorted(maps.Values(running))
			}
		}
		watch.Stop()
	}
	t.Fatalf("only %d of %d pods run", len(running), count)
	return nil
}
