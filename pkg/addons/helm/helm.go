// Package helm installs charts: HelmChart and HelmChartConfig objects, as k3s and rke2 have them, applied in this
// process by Helm's library. There is no job, no pod and no account; a chart is applied with an administrator's rights.
// docs/charts.md is its contract.
//
// It leaves the kinds' schema to manifests/helm-crds.yaml, and is meant to run on one server at a time.
package helm

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/sirupsen/logrus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/runtime/registries"
)

// HelmCharts is the controller.
type HelmCharts struct {
	// Kubeconfig is an administrator's: charts may hold anything, roles too.
	Kubeconfig string
	// Charts is the directory from which charts are taken by file name. It is made if it is missing.
	Charts string
	// KeyFile holds a secret that all servers of the cluster have. It keeps people from guessing what is in Secrets by the
	// hashes in statuses. With another one, each chart is applied once more.
	KeyFile string
	// Registries is the registries.yaml, read for each chart that is in a registry. It may be nil.
	Registries *registries.Live
	// NoDefault does not ask a registry itself that has mirrors in that file.
	NoDefault bool
	// Disabled only lets go of charts that are deleted, without uninstalling anything.
	Disabled bool
	// Report takes the charts that are not well, after each change; may be nil.
	Report func([]FailedChart)
}

// workers is how many charts are worked at at once. They mostly wait, and may wait for one another.
const workers = 8

// Run works until ctx is done. It is ready at once: nobody waits for charts.
func (h HelmCharts) Run(ctx context.Context, ready func()) error {
	ctx = kube.WithComponent(ctx, "helm")
	clients, err := connect(h.Kubeconfig)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(h.Charts, 0o700); err != nil {
		return fmt.Errorf("making the directory of charts: %w", err)
	}
	key, err := os.ReadFile(h.KeyFile)
	if err != nil {
		return fmt.Errorf("reading the key for hashes of charts: %w", err)
	}
	c := newController(h, clients, logrus.WithField("component", "helm"))
	c.key = key
	ready()
	if err := c.awaitKinds(ctx); err != nil {
		return nil // the end came first
	}
	c.watchKinds(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), c.synced...) {
		return nil
	}
	var working sync.WaitGroup
	for range workers {
		working.Go(func() { c.work(ctx) })
	}
	<-ctx.Done()
	c.queue.ShutDown()
	lifecycle.WaitingFor(ctx, "charts that are being applied")
	working.Wait()
	c.clearReport()
	return nil
}

// awaitKinds returns when the API server serves the two kinds, which is a moment after their definitions are applied.
func (c *controller) awaitKinds(ctx context.Context) error {
	return lifecycle.Until(ctx, "the kinds of charts to be served", func(ctx context.Context) error {
		for _, api := range []schema.GroupVersionResource{chartsAPI, chartConfig} {
			if _, err := c.clients.dynamic.Resource(api).List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
				return err
			}
		}
		return nil
	})
}
