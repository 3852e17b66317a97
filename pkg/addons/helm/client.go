package helm

import (
	"context"
	"fmt"
	"net/http"

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
)

// clients are the ways in which we ask the API.
type clients struct {
	config   *rest.Config
	core     kubernetes.Interface
	dynamic  dynamic.Interface
	metadata metadata.Interface
	reading  chan struct{} // has room for the one who reads an index of a repository or a chart, which takes much memory
}

// connect makes clients that refuse to ask anything once ctx is done: Helm's actions cannot be stopped, and one that
// goes on must not write while another server leads.
func connect(ctx context.Context, kubeconfig string) (*clients, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", kubeconfig, err)
	}
	config.UserAgent = "coracle-helm"
	config.QPS = -1 // the API server has its own fairness
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return guard{ctx, next} })
	c := &clients{config: config, reading: make(chan struct{}, 1)}
	if c.core, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("making a client from %s: %w", kubeconfig, err)
	}
	if c.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("making a client from %s: %w", kubeconfig, err)
	}
	if c.metadata, err = metadata.NewForConfig(metadata.ConfigFor(config)); err != nil {
		return nil, fmt.Errorf("making a client from %s: %w", kubeconfig, err)
	}
	return c, nil
}

// guard lets requests through until ctx is done.
type guard struct {
	ctx  context.Context
	next http.RoundTripper
}

// RoundTrip refuses after the end.
func (g guard) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := g.ctx.Err(); err != nil {
		return nil, fmt.Errorf("asking nothing any more, this server stops or leads no longer: %w", err)
	}
	return g.next.RoundTrip(r)
}

// getter gives Helm its clients, for one action. No kubeconfig file or environment is read.
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

// ToRESTConfig is part of what Helm asks for, as are the others.
func (g *getter) ToRESTConfig() (*rest.Config, error) { return rest.CopyConfig(g.config), nil }

// ToDiscoveryClient returns the same client each time, whose answers are kept.
func (g *getter) ToDiscoveryClient() (discovery.CachedDiscoveryInterface, error) {
	return g.discovery, nil
}

// ToRESTMapper returns a mapper that Helm resets after it has installed CRDs.
func (g *getter) ToRESTMapper() (meta.RESTMapper, error) { return g.mapper, nil }

// ToRawKubeConfigLoader is asked for the namespace only.
func (g *getter) ToRawKubeConfigLoader() clientcmd.ClientConfig {
	return clientcmd.NewDefaultClientConfig(*clientcmdapi.NewConfig(),
		&clientcmd.ConfigOverrides{Context: clientcmdapi.Context{Namespace: g.namespace}})
}
