package apiserver

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	genericserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/egressselector"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"

	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// Group is an API group of coracle that the server of the built-in APIs serves with them: behind the same authentication
// and authorization, in discovery and in OpenAPI documents. Its APIService object names no Service.
type Group interface {
	// Scheme names the group's types in OpenAPI documents.
	Scheme() *runtime.Scheme
	// Install adds the group to the server. It is called once, before anything runs.
	Install(*genericserver.GenericAPIServer, kube.APICaches) error
}

// installGroups adds the groups to the server that was made from cfg.
func installGroups(groups []Group, server *genericserver.GenericAPIServer, cfg *app.Config) error {
	if len(groups) == 0 {
		return nil
	}
	base := &cfg.KubeAPIs.ControlPlane
	core := base.VersionedInformers.Core().V1()
	// The Node authorizer uses this cache of pods too.
	caches := kube.APICaches{Nodes: core.Nodes(), Pods: core.Pods().Lister()}
	if selector := base.Generic.EgressSelector; selector != nil {
		dial, err := selector.Lookup(egressselector.Cluster.AsNetworkContext())
		if err != nil {
			return fmt.Errorf("looking up the dialer to nodes: %w", err)
		}
		caches.Dial = dial
	}
	for _, g := range groups {
		if err := g.Install(server, caches); err != nil {
			return fmt.Errorf("adding an API group: %w", err)
		}
	}
	return nil
}
