package helm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// clients reach the API.
type clients struct {
	config   *rest.Config
	core     kubernetes.Interface
	dynamic  dynamic.Interface
	metadata metadata.Interface
	// server and transport are the address of the API server and the way to it, with credentials.
	server    *url.URL
	transport http.RoundTripper
}

// connect makes clients from a kubeconfig, which send nothing once ctx is done.
func connect(ctx context.Context, kubeconfig string) (*clients, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", kubeconfig, err)
	}
	kube.Fence(ctx, config)
	return newClients(config)
}

// newClients makes clients. It changes config.
func newClients(config *rest.Config) (*clients, error) {
	config.UserAgent = "coracle-helm"
	config.QPS = -1 // the API server has its own fairness
	c := &clients{config: config}
	var errs [5]error
	c.server, errs[0] = url.Parse(config.Host)
	c.transport, errs[1] = rest.TransportFor(config)
	c.core, errs[2] = kubernetes.NewForConfig(config)
	c.dynamic, errs[3] = dynamic.NewForConfig(config)
	c.metadata, errs[4] = metadata.NewForConfig(metadata.ConfigFor(config))
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("making a client of the API: %w", err)
	}
	return c, nil
}

// getter gives Helm its clients for one action, without reading a kubeconfig file or the environment.
type getter struct {
	config    *rest.Config
	namespace string
	discovery discovery.CachedDiscoveryInterface
	mapper    meta.ResettableRESTMapper
}

func newGetter(config *rest.Config, namespace string) (*getter, error) {
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for Helm: %w", err)
	}
	cached := memory.NewMemCacheClient(d)
	return &getter{config, namespace, cached, restmapper.NewDeferredDiscoveryRESTMapper(cached)}, nil
}

// ToRESTConfig returns a copy of the configuration.
func (g *getter) ToRESTConfig() (*rest.Config, error) { return rest.CopyConfig(g.config), nil }

// ToDiscoveryClient returns the same caching client each time.
func (g *getter) ToDiscoveryClient() (discovery.CachedDiscoveryInterface, error) {
	return g.discovery, nil
}

// ToRESTMapper returns a mapper, which Helm resets after it has installed CRDs.
func (g *getter) ToRESTMapper() (meta.RESTMapper, error) { return g.mapper, nil }

// ToRawKubeConfigLoader returns a configuration with nothing but the namespace, which is all that Helm reads from it.
func (g *getter) ToRawKubeConfigLoader() clientcmd.ClientConfig {
	return clientcmd.NewDefaultClientConfig(*clientcmdapi.NewConfig(),
		&clientcmd.ConfigOverrides{Context: clientcmdapi.Context{Namespace: g.namespace}})
}
