package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/test/hosts"
)

// measureAddons starts new clusters, uses the add-ons as soon as the API answers, and measures how long each takes.
func measureAddons(t *testing.T, wire *hosts.Wire, runs int, r *results) {
	for i := range runs {
		h := hosts.New(t, wire, fmt.Sprint("batt", i), hosts.Options{})
		h.CopyImages()
		h.Coracle("kubectl", "version", "--client") // unpacks
		began := time.Now()
		h.Start()
		asked := askForAll(t, h)
		h.Coracle("wait", "--timeout", "60s")
		pods := strings.Fields(h.Kubectl("get", "pods", "-A", "--field-selector=metadata.namespace!=default", "-o", "name"))
		r.add("a new cluster: pods that nobody asked for", "", 0, float64(len(pods)))
		if len(pods) > 0 {
			t.Errorf("a new cluster has pods that nobody asked for: %q", pods)
		}
		ready := began.Add(time.Duration(readyAt(t, h, began, state.Node, "node-ready") * float64(time.Second)))
		later := func(what string, limit float64, when time.Time) {
			r.add("from node Ready to: "+what, "s", limit, max(0, when.Sub(ready).Seconds()))
		}
		later("DNS answers", 1, began.Add(time.Duration(readyAt(t, h, began, state.Node, "dns")*float64(time.Second))))
		later("a LoadBalancer has its address", 1, (<-asked.address).get(t))
		later("a PersistentVolumeClaim is bound", 2, (<-asked.bound).get(t))
		later("kubectl top nodes works", 20, (<-asked.measured).get(t))
		h.Kill()
	}
}

// moment is the time of an event, or the reason why it did not happen.
type moment struct {
	when time.Time
	err  error
}

func (m moment) get(t *testing.T) time.Time {
	t.Helper()
	if m.err != nil {
		t.Fatal(m.err)
	}
	return m.when
}

// asked has the moments of the requested objects.
type asked struct{ address, bound, measured chan moment }

// askForAll creates a Service of type LoadBalancer and a pod with a volume, and queries the usage of nodes.
func askForAll(t *testing.T, h *hosts.Host) asked {
	t.Helper()
	out := asked{make(chan moment, 1), make(chan moment, 1), make(chan moment, 1)}
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}},
		},
	}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "app"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 8000}}, Selector: map[string]string{"app": "app"}},
	}
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		client, err := apiOf(ctx, h)
		if err == nil {
			_, err = client.CoreV1().PersistentVolumeClaims("default").Create(ctx, claim, metav1.CreateOptions{})
		}
		if err == nil {
			_, err = client.CoreV1().Services("default").Create(ctx, service, metav1.CreateOptions{})
		}
		if err == nil {
			err = create(ctx, h, podWith(claim.Name))
		}
		if err != nil {
			for _, c := range []chan moment{out.address, out.bound, out.measured} {
				c <- moment{err: err}
			}
			return
		}
		var all sync.WaitGroup
		all.Go(func() { out.address <- whenAddressed(ctx, client, service.Name) })
		all.Go(func() { out.bound <- whenBound(ctx, client, claim.Name) })
		all.Go(func() { out.measured <- whenMeasured(ctx, client) })
		all.Wait()
	}()
	return out
}

// apiOf waits until objects can be created: the namespace default is among the last objects that a new API server
// creates.
func apiOf(ctx context.Context, h *hosts.Host) (kubernetes.Interface, error) {
	for {
		_, err := os.Stat(h.Path("/etc/coracle/kubeconfig.yaml"))
		if err == nil {
			client := h.Client()
			if _, err = client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{}); err == nil {
				return client, nil
			}
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("waiting for an API that takes objects: %w", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func podWith(claim string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "app", Labels: map[string]string{"app": "app"}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64),
			Containers: []corev1.Container{{
				Name: "app", Image: "coracle.test/busybox:1", Command: []string{"sleep", "36000"},
				VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
			}},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
			}}},
		},
	}
}

func whenAddressed(ctx context.Context, client kubernetes.Interface, name string) moment {
	w, err := client.CoreV1().Services("default").Watch(ctx, only(name))
	return firstThat(ctx, w, err, func(s *corev1.Service) bool { return len(s.Status.LoadBalancer.Ingress) > 0 })
}

func whenBound(ctx context.Context, client kubernetes.Interface, name string) moment {
	w, err := client.CoreV1().PersistentVolumeClaims("default").Watch(ctx, only(name))
	return firstThat(ctx, w, err, func(c *corev1.PersistentVolumeClaim) bool { return c.Status.Phase == corev1.ClaimBound })
}

// whenMeasured queries like kubectl top.
func whenMeasured(ctx context.Context, client kubernetes.Interface) moment {
	for {
		var nodes struct {
			Items []struct{ Usage corev1.ResourceList }
		}
		data, err := client.CoreV1().RESTClient().Get().AbsPath("/apis/metrics.k8s.io/v1beta1/nodes").SetHeader("Accept", "application/json").DoRaw(ctx)
		if err == nil {
			err = json.Unmarshal(data, &nodes)
		}
		switch {
		case err == nil && len(nodes.Items) > 0 && !nodes.Items[0].Usage.Cpu().IsZero():
			return moment{when: time.Now()}
		case ctx.Err() != nil:
			return moment{err: fmt.Errorf("the usage of nodes is not told: %v", err)}
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func only(name string) metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()}
}

// firstThat is the time at which a watch first shows an object that satisfies the condition.
func firstThat[T any](ctx context.Context, w watch.Interface, err error, wanted func(T) bool) moment {
	if err != nil {
		return moment{err: err}
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		if object, ok := event.Object.(T); ok && wanted(object) {
			return moment{when: time.Now()}
		}
	}
	return moment{err: fmt.Errorf("no %T came to be as wanted: %w", *new(T), context.Cause(ctx))}
}
