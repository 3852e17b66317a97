package apibalancer

import (
	"context"
	"net"
	"slices"
	"strconv"

	"github.com/sirupsen/logrus"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// ofService selects the EndpointSlices of the Service kubernetes.
const ofService = discoveryv1.LabelServiceName + "=kubernetes"

// follow watches the list of servers. Its requests go through the balancer itself.
func (b *Balancer) follow(ctx context.Context) {
	ctx = kube.WithComponent(ctx, "balancer")
	select {
	case <-b.APIReady:
	case <-ctx.Done():
		return
	}
	log := logrus.WithField("component", "balancer")
	client, err := kube.Client(b.Kubeconfig)
	if err != nil {
		log.WithError(err).Error("the list of servers is not kept up to date")
		return
	}
	if awaitPermission(ctx, client) != nil {
		return
	}
	var store cache.Store
	changed := func(any) {
		if err := b.take(store.List()); err != nil {
			log.WithError(err).Warn("remembering the servers")
		}
	}
	store, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewFilteredListWatchFromClient(client.DiscoveryV1().RESTClient(), "endpointslices", metav1.NamespaceDefault,
			func(o *metav1.ListOptions) { o.LabelSelector = ofService }),
		ObjectType: &discoveryv1.EndpointSlice{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: changed, UpdateFunc: func(_, obj any) { changed(obj) }, DeleteFunc: changed,
		},
	})
	controller.RunWithContext(ctx)
}

// awaitPermission waits for the permission to read the list, which a new cluster grants a moment after its API answers. A watch that
// begins earlier would back off for long.
func awaitPermission(ctx context.Context, client kubernetes.Interface) error {
	return lifecycle.Until(ctx, "permission to read the list of servers", func(ctx context.Context) error {
		_, err := client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: ofService})
		return err
	})
}

// take sets the servers from EndpointSlices.
func (b *Balancer) take(slices []any) error {
	addresses := addressesOf(slices)
	if len(addresses) == 0 {
		return nil
	}
	b.pool.Set(addresses)
	return b.remember(addresses)
}

// addressesOf returns the ready servers in EndpointSlices, sorted, each once.
func addressesOf(all []any) (addresses []string) {
	for _, obj := range all {
		slice, ok := obj.(*discoveryv1.EndpointSlice)
		if !ok {
			continue
		}
		for _, port := range slice.Ports {
			if port.Port == nil || port.Name != nil && *port.Name != "https" {
				continue
			}
			for _, endpoint := range slice.Endpoints {
				if endpoint.Conditions.Ready != nil && !*endpoint.Conditions.Ready {
					continue
				}
				for _, address := range endpoint.Addresses {
					addresses = append(addresses, net.JoinHostPort(address, strconv.Itoa(int(*port.Port))))
				}
			}
		}
	}
	slices.Sort(addresses)
	return slices.Compact(addresses)
}
