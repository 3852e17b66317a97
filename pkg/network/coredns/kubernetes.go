package coredns

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// How long a server waits for its caches of the cluster. The first server then starts without, so that names outside the cluster
// resolve; a later one is not started, and the old one keeps running.
const (
	firstSync  = time.Second
	reloadSync = 10 * time.Second
)

// setupKubernetes returns setup of upstream's plugin/kubernetes/setup.go with three differences: the client is the parent's and uses
// protobuf, klog is not redirected, and the start continues as soon as the caches are filled, not at the next 100 ms tick.
func setupKubernetes(api http.RoundTripper) caddy.SetupFunc {
	return func(c *caddy.Controller) error { return addKubernetes(c, api) }
}

func addKubernetes(c *caddy.Controller, api http.RoundTripper) error {
	c.Next()
	k, err := kubernetes.ParseStanza(c)
	if err != nil {
		return plugin.Error("kubernetes", err)
	}
	if c.Next() {
		return plugin.Error("kubernetes", plugin.ErrOnce)
	}
	if k.ClientConfig == nil && len(k.APIServerList) == 0 {
		k.ClientConfig = parentClient{api: api}
	}
	_, stop, err := k.InitKubeCache(context.Background())
	if err != nil {
		return plugin.Error("kubernetes", err)
	}

	first := false
	c.OnFirstStartup(func() error {
		first = true
		return nil
	})
	c.OnStartup(func() error {
		go k.APIConn.Run()
		switch {
		case first:
			waitSynced(k.APIConn.HasSynced, firstSync)
		case !waitSynced(k.APIConn.HasSynced, reloadSync):
			_ = stop()
			return errNotSynced
		}
		return nil
	})
	c.OnShutdown(stop)
	dnsserver.GetConfig(c).AddPlugin(func(next plugin.Handler) plugin.Handler {
		k.Next = next
		return k
	})
	return nil
}

var errNotSynced = errors.New("the API server did not answer; keeping the server with the old Corefile, which has the cluster's names")

// waitSynced polls: upstream's caches have no notification.
func waitSynced(synced func() bool, timeout time.Duration) bool {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(timeout); time.Now().Before(end); <-tick.C {
		if synced() {
			return true
		}
	}
	return synced()
}

// inner is another name of the interface, so that parentClient can embed it and override its method ClientConfig.
type inner = clientcmd.ClientConfig

// parentClient reaches the API through the parent, with protobuf.
type parentClient struct {
	inner
	api http.RoundTripper
}

// ClientConfig implements clientcmd.ClientConfig.
func (p parentClient) ClientConfig() (*rest.Config, error) {
	const protobuf = "application/vnd.kubernetes.protobuf"
	return &rest.Config{Host: "http://kubernetes", Transport: p.api, UserAgent: "coracle-dns", ContentConfig: rest.ContentConfig{
		ContentType: protobuf, AcceptContentTypes: protobuf + ",application/json",
	}}, nil
}
