package metricsserver

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

func TestRunningPods(t *testing.T) {
	index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for _, p := range []struct {
		namespace, name string
		phase           corev1.PodPhase
	}{{"a", "runs", corev1.PodRunning}, {"a", "done", corev1.PodSucceeded}, {"b", "too", corev1.PodRunning}} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: p.name, Labels: map[string]string{"in": p.namespace}}}
		pod.Status.Phase = p.phase
		if err := index.Add(pod); err != nil {
			t.Fatal(err)
		}
	}
	pods := runningPods{corelisters.NewPodLister(index)}
	for name, c := range map[string]struct {
		namespace string
		selector  labels.Selector
		want      []string
	}{
		"of all namespaces": {"", labels.Everything(), []string{"runs", "too"}},
		"of one":            {"a", labels.Everything(), []string{"runs"}},
		"by label":          {"", labels.SelectorFromSet(labels.Set{"in": "b"}), []string{"too"}},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := pods.ByNamespace(c.namespace).List(c.selector)
			var names []string
			for _, o := range found {
				names = append(names, o.(*metav1.PartialObjectMetadata).Name)
			}
			slices.Sort(names)
			if err != nil || !slices.Equal(names, c.want) {
				t.Errorf("got %v, %v; want %v", names, err, c.want)
			}
		})
	}
	if o, err := pods.ByNamespace("a").Get("runs"); err != nil || o.(*metav1.PartialObjectMetadata).Labels["in"] != "a" {
		t.Errorf("got %v, %v", o, err)
	}
	for _, name := range []string{"done", "nobody"} {
		if _, err := pods.ByNamespace("a").Get(name); !apierrors.IsNotFound(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestHeardOf(t *testing.T) {
	all := listed(t, node("yes", corev1.ConditionTrue), node("ill", corev1.ConditionFalse), node("gone", corev1.ConditionUnknown))
	found, err := reachableNodes{all}.List(labels.Everything())
	if err != nil || len(found) != 2 || slices.ContainsFunc(found, func(n *corev1.Node) bool { return n.Name == "gone" }) {
		t.Errorf("asks %v, %v", found, err)
	}
}
