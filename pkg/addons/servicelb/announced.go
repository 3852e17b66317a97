package servicelb

import (
	"context"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-dev/coracle/pkg/core/addon"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// Announced tells this server's voter which nodes may announce which addresses of pools. It runs on every server, because a vote must not depend on
// the one that leads. It watches nothing until a node asks for votes, as nodes do when there is an address of a pool.
type Announced struct {
	// Kubeconfig may watch Services, Nodes and EndpointSlices.
	Kubeconfig string
	Pools      Pools
	Voter      addon.Voter
	Gateways   *addon.GatewayAddresses
}

// Run works until ctx is done. It is ready at once.
func (a Announced) Run(ctx context.Context, ready func()) error {
	ready()
	if a.Pools.none() {
		a.Voter.SetPool(map[netip.Addr][]string{}, nil) // the voter waits for it, also for the address of the API
		<-ctx.Done()
		return nil
	}
	select {
	case <-a.Voter.Wanted():
	case <-ctx.Done():
		return nil
	}
	client, err := kube.Client(a.Kubeconfig)
	if err != nil {
		return err
	}
	ctx = kube.WithComponent(ctx, "lb-owners")
	f := newFeed(client)
	f.start(ctx)
	if err := a.Pools.follow(ctx, a.Kubeconfig, f.notify); err != nil {
		return err
	}
	cache.WaitFor(ctx, "", f.services.synced)
	for ctx.Err() == nil {
		next := a.Gateways.Next()
		services := listOf[*corev1.Service](f.services)
		gateways, known := a.Gateways.Gateways()
		f.need(ctx, services, len(gateways) > 0)
		unusable, err := a.Pools.unusable()
		if err == nil && known && ctx.Err() == nil {
			in := snapshot{services: services, nodes: listOf[*corev1.Node](f.nodes), endpoints: f.endpoints(), pools: a.Pools.current(), unusable: unusable}
			a.Voter.SetPool(in.announced(gateways))
		}
		select {
		case <-next:
		case <-f.changed:
		case <-ctx.Done():
		}
	}
	return nil
}
