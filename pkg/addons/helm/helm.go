// Package helm installs charts: HelmChart and HelmChartConfig objects, as k3s and rke2 have them. The controller runs in
// the control plane on the server that leads. It fetches charts, decides what to do, and writes statuses; Helm's library
// runs in a child process for each action, which reaches the API through the controller only. There is no job and no
// pod; a chart is applied as the ServiceAccount that it names, or else as an administrator. docs/charts.md is the contract.
//
// The schema of the kinds is in manifests/helm-crds.yaml.
package helm

import (
	"cmp"
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
	// Kubeconfig is an administrator's, because charts may contain anything.
	Kubeconfig string
	// Namespaces are those whose charts may be applied as the administrator; all if there are none. Charts elsewhere need a
	// ServiceAccount.
	Namespaces []string
	// Charts is the directory of charts that are named by file. It is created if it is missing.
	Charts string
	// Copy is where it is read, if that is elsewhere.
	Copy string
	// KeyFile contains a secret that all servers of the cluster share. It keys the hashes in statuses, so that nobody can guess
	// the contents of Secrets from them. If it changes, each chart is applied once more.
	KeyFile string
	// Registries is the registries.yaml, which is read for each oci:// chart; may be nil.
	Registries *registries.Live
	// NoDefault excludes a registry itself if it has mirrors in registries.yaml.
	NoDefault bool
	// Disabled applies no charts, and removes the finalizer of deleted ones without uninstalling anything.
	Disabled bool
	// Report receives the charts with problems after each change; may be nil.
	Report func([]FailedChart)
}

// workers is how many charts are processed at once. Most of the time they wait, some for another chart.
const workers = 8

// Run applies charts until ctx is done. It is ready at once, because no other component needs charts.
func (h HelmCharts) Run(ctx context.Context, ready func()) error {
	ctx = kube.WithComponent(ctx, "helm")
	clients, err := connect(ctx, h.Kubeconfig)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(cmp.Or(h.Copy, h.Charts), 0o700); err != nil {
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
		return nil // ctx is done
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

// awaitKinds waits until the API server serves the two kinds, a moment after their definitions are applied.
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
