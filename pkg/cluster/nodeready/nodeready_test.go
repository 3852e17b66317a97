package nodeready

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-dev/coracle/pkg/core/kube"
)

func node(status corev1.ConditionStatus, heartbeat time.Time) *corev1.Node {
	n := &corev1.Node{}
	n.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionTrue},
		{Type: corev1.NodeReady, Status: status, Reason: "KubeletNotReady", Message: "no CNI", LastHeartbeatTime: metav1.NewTime(heartbeat)},
	}
	return n
}

func TestState(t *testing.T) {
	start := time.Date(2026, 1, 1, 12, 0, 0, 700e6, time.UTC)
	tests := []struct {
		name string
		node *corev1.Node
		want bool
		why  string
	}{
		{"not registered", nil, false, "it is not registered"},
		{"silent", &corev1.Node{}, false, "the kubelet has not said anything yet"},
		{"ready", node(corev1.ConditionTrue, start.Add(time.Second)), true, ""},
		{"ready in the second of the start", node(corev1.ConditionTrue, start.Truncate(time.Second)), true, ""},
		{"ready before the start", node(corev1.ConditionTrue, start.Add(-time.Minute)), false, "the kubelet has not said anything since its start"},
		{"not ready", node(corev1.ConditionFalse, start.Add(time.Second)), false, "KubeletNotReady: no CNI"},
		{"unknown", node(corev1.ConditionUnknown, start.Add(time.Second)), false, "KubeletNotReady: no CNI"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, why := NodeReady{Since: start}.state(tt.node)
			if got != tt.want || why != tt.why {
				t.Errorf("got %v %q", got, why)
			}
		})
	}
}

func TestRun(t *testing.T) {
	own := kube.NewOwnNode("", "a")
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- NodeReady{Node: own}.Run(t.Context(), func() { close(ready) }) }()
	own.Set(node(corev1.ConditionFalse, time.Now()))
	select {
	case <-ready:
		t.Fatal("ready although the node is not")
	case <-time.After(20 * time.Millisecond):
	}
	own.Set(node(corev1.ConditionTrue, time.Now()))
	<-ready
	own.Set(nil) // somebody deleted it: no panic, no end
	select {
	case err := <-done:
		t.Fatalf("it ended: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
}

func TestOtherNetwork(t *testing.T) {
	own := kube.NewOwnNode("", "a")
	n := node(corev1.ConditionFalse, time.Now())
	n.Status.Conditions[1].Message = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady"
	own.Set(n)
	ready := make(chan struct{})
	go NodeReady{Node: own, OtherNetwork: true}.Run(t.Context(), func() { close(ready) })
	<-ready
}
