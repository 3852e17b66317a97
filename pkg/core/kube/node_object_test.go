package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// kubeconfigFor writes a kubeconfig for a server without TLS.
func kubeconfigFor(t *testing.T, url string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters: [{name: x, cluster: {server: %q}}]\n"+
		"contexts: [{name: x, context: {cluster: x, user: x}}]\nusers: [{name: x, user: {}}]\n", url)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestAPIGate(t *testing.T) {
	for name, last := range map[string]int{"a new node": http.StatusNotFound, "a known node": http.StatusOK} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				status, reason := last, "NotFound"
				if asked.Add(1) < 3 {
					status, reason = http.StatusForbidden, "Forbidden" // the roles are not there yet
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(status)
				if status == http.StatusOK {
					fmt.Fprint(w, `{"kind":"Node","apiVersion":"v1","metadata":{"name":"a"}}`)
					return
				}
				fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, reason, status)
			}))
			defer server.Close()
			gate := NewAPIGate(kubeconfigFor(t, server.URL), "a")
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- gate.Run(ctx, func() {}) }()
			<-gate.Opened()
			if asked.Load() != 3 {
				t.Errorf("it opened after %d questions", asked.Load())
			}
			cancel()
			if err := <-done; err != nil {
				t.Errorf("it ends with %v", err)
			}
		})
	}
}

func TestAwait(t *testing.T) {
	o := NewOwnNode("", "a")
	got := make(chan *corev1.Node, 1)
	go func() {
		node, err := o.Await(t.Context(), "a subnet", func(n *corev1.Node) bool { return n.Spec.PodCIDR != "" })
		if err != nil {
			t.Error(err)
		}
		got <- node
	}()
	o.Set(&corev1.Node{})
	o.Set(nil)
	want := &corev1.Node{Spec: corev1.NodeSpec{PodCIDR: "10.42.0.0/24"}}
	o.Set(want)
	if node := <-got; node != want {
		t.Errorf("got %v", node)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := o.Await(ctx, "nothing", func(*corev1.Node) bool { return false }); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestHeardOf(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 5e8, time.UTC)
	node := func(at time.Time) *corev1.Node {
		n := &corev1.Node{}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, LastHeartbeatTime: metav1.NewTime(at)}}
		return n
	}
	if HeardOf(&corev1.Node{}, start) || HeardOf(node(start.Add(-time.Second)), start) {
		t.Error("an old word counts")
	}
	if !HeardOf(node(start.Truncate(time.Second)), start) || !HeardOf(node(start.Add(time.Minute)), start) {
		t.Error("a new word does not count")
	}
}

func TestAddressesSettled(t *testing.T) {
	const provided = "alpha.kubernetes.io/provided-node-ip"
	has := []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "172.30.0.2"}}
	for _, test := range []struct {
		title       string
		annotations map[string]string
		addresses   []corev1.NodeAddress
		want        bool
	}{
		{"nothing said", nil, nil, false},
		{"said by the kubelet", nil, has, true},
		{"by the control plane", map[string]string{ExternalIPAnnotation: "192.0.2.7", provided: "172.30.0.2"}, has, true},
		{"not yet by the control plane", map[string]string{ExternalIPAnnotation: "192.0.2.7", provided: "172.30.0.3"}, has, false},
		{"one family is missing", map[string]string{ExternalIPAnnotation: "192.0.2.7", provided: "172.30.0.2,fd00::2"}, has, false},
		{"by another cloud", map[string]string{provided: "172.30.0.3"}, has, true},
		{"by the kubelet again", map[string]string{ExternalIPAnnotation: "192.0.2.7"}, has, true},
	} {
		t.Run(test.title, func(t *testing.T) {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: test.annotations}, Status: corev1.NodeStatus{Addresses: test.addresses}}
			if got := AddressesSettled(n); got != test.want {
				t.Errorf("got %t", got)
			}
		})
	}
}
