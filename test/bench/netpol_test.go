package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-dev/coracle/test/hosts"
)

// policyPods is the number of pods on one node, all subject to policies; policyChanges is the number of changes.
const policyPods, policyChanges = 100, 200

// measureNetworkPolicy measures the time from sending a change to the API server until packets are affected.
func measureNetworkPolicy(t *testing.T, wire *hosts.Wire, r *results) {
	h := hosts.New(t, wire, "policies", hosts.Options{})
	h.CopyImages()
	s, _ := start(t, h)
	client := h.Client()
	applyPolicyPods(t, client)
	pods := policyPodsRunning(t, client)
	target, dialer := pods[0], pods[1]
	address := net.JoinHostPort(target.Status.PodIP, "9000")
	inside(t, target, func() (err error) {
		l, err := net.Listen("tcp", ":9000")
		if err == nil {
			t.Cleanup(func() { l.Close() })
			go serveNobody(l)
		}
		return err
	})
	process := hosts.PodProcess(t, string(dialer.UID))
	r.add("network policy: a pod's label to effect, p99 at 100 pods", "s", 0.5, flips(t, process, address, func(open bool) error {
		patch := fmt.Sprintf(`{"metadata":{"labels":{"open":"%v"}}}`, open)
		_, err := client.CoreV1().Pods("default").Patch(t.Context(), dialer.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}))
	r.add("network policy: a policy to effect, p99 at 100 pods", "s", 0.5, flips(t, process, address, func(open bool) error {
		p := policyFor(open)
		_, err := client.NetworkingV1().NetworkPolicies("default").Update(t.Context(), p, metav1.UpdateOptions{})
		return err
	}))
	stop(t, s)
	h.Kill()
}

// policyFor allows pods with a label, or all.
func policyFor(all bool) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	from := []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"open": "true"}}}}
	if all {
		from = []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}}
	}
	p.Spec = networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		Ingress: []networkingv1.NetworkPolicyIngressRule{{From: from}}}
	return p
}

// flips switches something on and off, and returns the 99th percentile of the time until it takes effect, in seconds.
func flips(t *testing.T, process int, address string, change func(open bool) error) float64 {
	t.Helper()
	var took []float64
	for i := range policyChanges {
		open := i%2 == 0
		began := time.Now()
		if err := change(open); err != nil {
			t.Fatal(err)
		}
		err := hosts.On(process, func() error {
			for time.Since(began) < 10*time.Second {
				conn, err := net.DialTimeout("tcp", address, time.Second)
				if err == nil {
					conn.Close()
				}
				if (err == nil) == open {
					return nil
				}
				time.Sleep(time.Millisecond)
			}
			return errors.New("it has no effect")
		})
		if err != nil {
			t.Fatalf("change %d, to open %v: %v", i, open, err)
		}
		took = append(took, time.Since(began).Seconds())
	}
	if err := change(false); err != nil {
		t.Fatal(err)
	}
	slices.Sort(took)
	t.Logf("p50 %.3f s, p99 %.3f s", took[len(took)/2], took[len(took)*99/100])
	return took[len(took)*99/100]
}

func applyPolicyPods(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	for i := range policyPods {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("pod-", i), Labels: map[string]string{"n": fmt.Sprint(i)}},
			Spec: corev1.PodSpec{TerminationGracePeriodSeconds: new(int64), Containers: []corev1.Container{
				{Name: "c", Image: "coracle.test/busybox:1", Command: []string{"sleep", "36000"}}}}}
		if _, err := client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.NetworkingV1().NetworkPolicies("default").Create(t.Context(), policyFor(false), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func policyPodsRunning(t *testing.T, client kubernetes.Interface) (pods []corev1.Pod) {
	t.Helper()
	hosts.Eventually(t, 5*time.Minute, func() error {
		list, err := client.CoreV1().Pods("default").List(context.Background(), metav1.ListOptions{FieldSelector: "status.phase=Running"})
		if err != nil {
			return err
		}
		pods = slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return !strings.HasPrefix(p.Name, "pod-") })
		if len(pods) != policyPods {
			return fmt.Errorf("%d of %d pods run", len(pods), policyPods)
		}
		return nil
	})
	return pods
}

// inside runs a function in a pod's network namespace.
func inside(t *testing.T, pod corev1.Pod, do func() error) {
	t.Helper()
	if err := hosts.On(hosts.PodProcess(t, string(pod.UID)), do); err != nil {
		t.Fatal(err)
	}
}

// serveNobody accepts connections and closes them.
func serveNobody(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		conn.Close()
	}
}
