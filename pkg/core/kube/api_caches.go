package kube

import (
	"context"
	"net"

	coreinformers "k8s.io/client-go/informers/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
)

// APICaches are caches and connections of the API server that an API group served by the same process may use.
type APICaches struct {
	Nodes coreinformers.NodeInformer
	Pods  corelisters.PodLister
	// Dial connects to nodes, also to those that only their tunnels lead to; nil means to dial directly.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}
