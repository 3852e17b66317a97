package metricsserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"testing"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/metrics-server/pkg/storage"
)

// failing are kubelets of which the named ones do not answer.
type failing map[string]error

// GetMetrics implements client.KubeletMetricsGetter.
func (f failing) GetMetrics(_ context.Context, node *corev1.Node) (*storage.MetricsBatch, error) {
	return &storage.MetricsBatch{}, f[node.Name]
}

func TestScrapeErrors(t *testing.T) {
	output := logrus.StandardLogger().Out
	logrus.SetOutput(io.Discard)
	t.Cleanup(func() { logrus.SetOutput(output) })
	a, b, ill := node("a", corev1.ConditionTrue), node("b", corev1.ConditionTrue), node("ill", corev1.ConditionFalse)
	kubelets := failing{"ill": errors.New("it is known that it is not well")}
	o := &scrapeErrors{getter: kubelets, failed: map[string]string{}}
	var told []Scrapes
	round := func(nodes ...*corev1.Node) {
		for _, n := range nodes {
			if _, err := o.GetMetrics(t.Context(), n); fmt.Sprint(err) != fmt.Sprint(kubelets[n.Name]) {
				t.Errorf("asking %s: %v", n.Name, err)
			}
		}
		o.report(listed(t, nodes...), func(m Scrapes) { told = append(told, m) })
	}
	round(a, b, ill)
	round(a, b, ill)
	kubelets["b"] = errors.New("connection refused")
	round(a, b, ill)
	round(a, b, ill)
	delete(kubelets, "b")
	round(a, b, ill)
	kubelets["a"] = errors.New("connection refused")
	round(a, b)
	round(b) // a is gone
	want := []Scrapes{
		{Nodes: 3}, {Nodes: 3, Failed: map[string]string{"b": "connection refused"}}, {Nodes: 3},
		{Nodes: 2, Failed: map[string]string{"a": "connection refused"}}, {Nodes: 1},
	}
	if len(told) != len(want) {
		t.Fatalf("told %+v", told)
	}
	kubelets["b"] = errors.New("context canceled")
	ended, stop := context.WithCancel(t.Context())
	stop()
	if _, err := o.GetMetrics(ended, b); err == nil {
		t.Error("a request that was canceled has no error")
	}
	o.report(listed(t, b), func(m Scrapes) { t.Errorf("the end of coracle is reported as a failure of a node: %+v", m) })
	for i, m := range told {
		if m.Nodes != want[i].Nodes || !maps.Equal(m.Failed, want[i].Failed) {
			t.Errorf("told %+v, want %+v", m, want[i])
		}
	}
}

// telling is a kubelet that has figures of pods.
type telling []string

// GetMetrics implements client.KubeletMetricsGetter.
func (k telling) GetMetrics(context.Context, *corev1.Node) (*storage.MetricsBatch, error) {
	batch := &storage.MetricsBatch{Pods: map[types.NamespacedName]storage.PodMetricsPoint{}}
	for _, name := range k {
		batch.Pods[types.NamespacedName{Namespace: "a", Name: name}] = storage.PodMetricsPoint{}
	}
	return batch, nil
}

// TestForeignFigures: a kubelet tells of the pods of its node alone.
func TestForeignFigures(t *testing.T) {
	index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for name, node := range map[string]string{"own": "a", "other": "b", "waits": ""} {
		if err := index.Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}, Spec: corev1.PodSpec{NodeName: node}}); err != nil {
			t.Fatal(err)
		}
	}
	o := &scrapeErrors{getter: telling{"own", "other", "waits", "gone"}, pods: corelisters.NewPodLister(index), failed: map[string]string{}}
	batch, err := o.GetMetrics(t.Context(), node("a", corev1.ConditionTrue))
	if _, own := batch.Pods[types.NamespacedName{Namespace: "a", Name: "own"}]; err != nil || len(batch.Pods) != 1 || !own {
		t.Errorf("the figures of node a are of %v, %v", batch.Pods, err)
	}
}
