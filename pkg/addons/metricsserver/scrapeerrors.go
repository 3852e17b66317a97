package metricsserver

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"sigs.k8s.io/metrics-server/pkg/scraper/client"
	"sigs.k8s.io/metrics-server/pkg/storage"

	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// scrapeErrors records which kubelets did not answer, for coracle status. Of those that did it takes figures of their own pods alone.
type scrapeErrors struct {
	getter client.KubeletMetricsGetter
	pods   corelisters.PodLister

	mu       sync.Mutex
	failed   map[string]string // errors by node
	reported *Scrapes          // the last report
}

// GetMetrics implements client.KubeletMetricsGetter.
func (o *scrapeErrors) GetMetrics(ctx context.Context, node *corev1.Node) (*storage.MetricsBatch, error) {
	batch, err := o.getter.GetMetrics(ctx, node)
	if err == nil {
		maps.DeleteFunc(batch.Pods, func(pod types.NamespacedName, _ storage.PodMetricsPoint) bool {
			known, err := o.pods.Pods(pod.Namespace).Get(pod.Name)
			return err != nil || known.Spec.NodeName != node.Name
		})
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.failed, node.Name)
	if err != nil && ctx.Err() != context.Canceled && kube.NodeReadiness(node) == corev1.ConditionTrue { // the status of other nodes shows the reason
		o.failed[node.Name] = err.Error()
	}
	return batch, err
}

// report calls tell if the report has changed.
func (o *scrapeErrors) report(nodes corelisters.NodeLister, tell func(Scrapes)) {
	all, err := nodes.List(labels.Everything())
	if err != nil { // listing a cache never fails
		return
	}
	exists := map[string]bool{}
	for _, n := range all {
		exists[n.Name] = true
	}
	o.mu.Lock()
	maps.DeleteFunc(o.failed, func(name, _ string) bool { return !exists[name] })
	now := Scrapes{Nodes: len(all), Failed: maps.Clone(o.failed)}
	before := o.reported
	changed := before == nil || before.Nodes != now.Nodes || !maps.Equal(before.Failed, now.Failed)
	o.reported = &now
	o.mu.Unlock()
	if changed {
		tell(now)
	}
	for _, name := range slices.Sorted(maps.Keys(now.Failed)) {
		if before == nil || before.Failed[name] == "" {
			logrus.WithFields(logrus.Fields{"component": "metrics-server", "node": name}).Warn("no figures of this node: " + now.Failed[name])
		}
	}
}
