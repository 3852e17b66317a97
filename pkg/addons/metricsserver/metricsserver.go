// Package metricsserver serves metrics.k8s.io, the CPU and memory usage of nodes and pods, for kubectl top and
// HorizontalPodAutoscalers. It runs upstream's metrics-server inside the API server: its API, scraper and storage, with the
// API server's own caches and connections to kubelets. There is no pod, no Service and no certificate.
//
// Every server measures for its own clients, and keeps two measurements of each container.
package metricsserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"sigs.k8s.io/metrics-server/pkg/api"
	"sigs.k8s.io/metrics-server/pkg/scraper"
	"sigs.k8s.io/metrics-server/pkg/scraper/client"
	"sigs.k8s.io/metrics-server/pkg/scraper/client/resource"
	"sigs.k8s.io/metrics-server/pkg/storage"

	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// MetricsServer is the component. Install comes before Run.
type MetricsServer struct {
	CA, Cert, Key string        // files: the CA of kubelets, and the client certificate for kubelets
	Report        func(Scrapes) // called after each change

	usage *usage
}

// Scheme returns the scheme of the API's types.
func (*MetricsServer) Scheme() *runtime.Scheme { return api.Scheme }

// scrapeTimeout is how long a kubelet may take to answer.
const scrapeTimeout = 10 * time.Second

// Install adds the API to a server.
func (m *MetricsServer) Install(server *genericserver.GenericAPIServer, caches kube.APICaches) error {
	if err := register(legacyregistry.Register); err != nil {
		return fmt.Errorf("registering metrics of metrics-server: %w", err)
	}
	kubelets, err := resource.NewForConfig(&client.KubeletClientConfig{
		Scheme: "https", DefaultPort: 10250, UseNodeStatusPort: true,
		AddressTypePriority: []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP, corev1.NodeHostName},
		Client:              m.client(caches),
	})
	if err != nil {
		return fmt.Errorf("preparing to ask kubelets: %w", err)
	}
	nodes := caches.Nodes.Lister()
	asked := &scrapeErrors{getter: kubelets, pods: caches.Pods, failed: map[string]string{}}
	m.usage = &usage{
		Storage: storage.NewStorage(0), // see firstMeasurements
		scraper: scraper.NewScraper(reachableNodes{nodes}, asked, scrapeTimeout, nil),
		nodes:   nodes,
		wake:    make(chan struct{}, 1),
		report: func() {
			if m.Report != nil {
				asked.report(nodes, m.Report)
			}
		},
	}
	if _, err := caches.Nodes.Informer().AddEventHandler(m.usage.newNodes()); err != nil {
		return fmt.Errorf("listening for new nodes: %w", err)
	}
	return api.Install(m.usage, runningPods{caches.Pods}, nodes, server, nil)
}

// client returns the configuration of the client for kubelets.
func (m *MetricsServer) client(caches kube.APICaches) rest.Config {
	return rest.Config{
		TLSClientConfig: rest.TLSClientConfig{CAFile: m.CA, CertFile: m.Cert, KeyFile: m.Key},
		Dial:            caches.Dial, Timeout: scrapeTimeout, WrapTransport: bounded,
	}
}

func register(enter func(metrics.Registerable) error) error {
	return errors.Join(api.RegisterAPIMetrics(enter), scraper.RegisterScraperMetrics(enter), storage.RegisterStorageMetrics(enter))
}

// Run measures until ctx is done. It is ready at once, because no component depends on the first figures.
func (m *MetricsServer) Run(ctx context.Context, ready func()) error {
	if m.usage == nil {
		return errors.New("the API was not installed")
	}
	ready()
	m.usage.run(kube.WithComponent(ctx, "metrics-server"))
	return nil
}
