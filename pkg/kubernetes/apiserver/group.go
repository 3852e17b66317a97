package apiserver

import (
	"context"
	"fmt"
	"net"

	"k8s.io/apimachinery/pkg/runtime"
	genericserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/egressselector"
	coreinformers "k8s.io/client-go/informers/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

// Group is an API group of ours that the server of the built-in APIs serves with them: behind the same authentication and
// authorization, in discovery and in OpenAPI documents. Its APIService object names no Service.
type Group struct {
	Scheme *runtime.Scheme // names its types in OpenAPI documents
	// Install enters the group into the server, once, before anything runs.
	Install func(*genericserver.GenericAPIServer, Cluster) error
}

// Cluster is what a Group may know without asking: the server's own caches, which it has anyway, and its way to nodes.
type Cluster struct {
	Nodes coreinformers.NodeInformer
	Pods  corelisters.PodLister
	// Dial reaches nodes, also those that only their tunnels lead to; nil is the network.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// installGroups enters the groups into the server that cfg was made for.
func installGroups(groups []Group, server *genericserver.GenericAPIServer, cfg *app.Config) error {
	if len(groups) == 0 {
		return nil
	}
	base := &cfg.KubeAPIs.ControlPlane
	core := base.VersionedInformers.Core().V1()
	// The Node authorizer has this cache of pods too.
	cluster := Cluster{Nodes: core.Nodes(), Pods: core.Pods().Lister()}
	if selector := base.Generic.EgressSelector; selector != nil {
		dial, err := selector.Lookup(egressselector.Cluster.AsNetworkContext())
		if err != nil {
			return fmt.Errorf("finding the way to nodes: %w", err)
		}
		cluster.Dial = dial
	}
	for _, g := range groups {
		if err := g.Install(server, cluster); err != nil {
			return fmt.Errorf("adding an API group: %w", err)
		}
	}
	return nil
}
