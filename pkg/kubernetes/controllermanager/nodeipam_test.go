package controllermanager

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
)

// TestSoundNodes: a subnet that upstream's controller did not assign would end the process, so the controller does not see it.
func TestSoundNodes(t *testing.T) {
	made := time.Now()
	node := func(name string, age time.Duration, cidrs ...string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(made.Add(-age))}, Spec: corev1.NodeSpec{PodCIDRs: cidrs}}
	}
	s := soundNodes{informers.NewSharedInformerFactory(fake.NewClientset(), 0).Core().V1().Nodes(), cidrs("10.42.0.0/16")}
	sound := map[*corev1.Node]bool{
		node("first", time.Hour, "10.42.0.0/24"): true, node("second", time.Minute, "10.42.1.0/24"): true, node("new", 0): true,
		node("overlaps", time.Minute, "10.42.0.128/25"): false, node("elsewhere", time.Hour, "10.77.0.0/24"): false, node("all", time.Minute, "10.0.0.0/8"): false,
	}
	for n := range sound {
		if err := s.NodeInformer.Informer().GetIndexer().Add(n); err != nil {
			t.Fatal(err)
		}
	}
	pass := s.Informer().(filtered).pass
	for n, want := range sound {
		if pass(n) != want || pass(cache.DeletedFinalStateUnknown{Obj: n}) != want {
			t.Errorf("%s with %q: it passes is %v", n.Name, n.Spec.PodCIDRs, !want)
		}
	}
}
