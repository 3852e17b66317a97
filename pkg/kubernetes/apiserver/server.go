package apiserver

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	genericserver "k8s.io/apiserver/pkg/server"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/kube-aggregator/pkg/apiserver"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/common/restfuladapter"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	controlplaneserver "k8s.io/kubernetes/pkg/controlplane/apiserver"
	flowcontrolrest "k8s.io/kubernetes/pkg/registry/flowcontrol/rest"
)

// createServer builds the chain of servers: custom resources, the built-in APIs, and the aggregation layer, which it returns. It replaces
// two parts of upstream's start: see bootstrap and openAPI. ca is the file with the authority of its certificate; alone reports whether it is the cluster's only server.
func createServer(cfg *app.Config, groups []Group, ca string, alone func() bool) (*apiserver.APIAggregator, error) {
	controlplaneserver.IdentityLeaseRenewIntervalPeriod = identityRenewal
	complete, err := cfg.Complete()
	if err != nil {
		return nil, err
	}
	endpoints := &complete.KubeAPIs.Extra.EndpointReconcilerConfig
	endpoints.Reconciler = &seldom{EndpointReconciler: endpoints.Reconciler, alone: alone}
	generic := cfg.KubeAPIs.ControlPlane.Generic
	generic.SkipOpenAPIInstallation = true
	nameOperations(generic)
	hooks := replacedHooks(generic)
	generic.DisabledPostStartHooks.Insert(hooks...)
	server, err := app.CreateServerChain(complete)
	generic.DisabledPostStartHooks.Delete(hooks...)
	if err != nil {
		return nil, err
	}
	if err := addHooks(server, cfg.KubeAPIs.ControlPlane.VersionedInformers, hooks); err != nil {
		return nil, err
	}
	first := inProcess(server, cfg.KubeAPIs.ControlPlane.VersionedInformers, accounts(ca))
	if err := server.GenericAPIServer.AddPostStartHook(accountsHook, first); err != nil {
		return nil, err
	}
	builtIn, ok := server.GenericAPIServer.NextDelegate().(*genericserver.GenericAPIServer)
	if !ok {
		return nil, errors.New("the server of the built-in APIs is not where it was expected")
	}
	if err := installGroups(groups, builtIn, cfg); err != nil {
		return nil, err
	}
	installOpenAPI(builtIn, generic.OpenAPIConfig, generic.OpenAPIV3Config, gates())
	return server, nil
}

// addHooks adds the named hooks of bootstrap.
func addHooks(server *apiserver.APIAggregator, informers informers.SharedInformerFactory, names []string) error {
	upstream, err := keepFlowControl(informers)
	if err != nil {
		return err
	}
	for _, name := range names {
		hook := inProcess(server, informers, bootstrap[name])
		if name == flowcontrolrest.PostStartHookName {
			ensure := hook
			hook = func(ctx genericserver.PostStartHookContext) error {
				return errors.Join(ensure(ctx), upstream(ctx))
			}
		}
		if err := server.GenericAPIServer.AddPostStartHook(name, hook); err != nil {
			return err
		}
	}
	return nil
}

// replacedHooks returns the names of the hooks in bootstrap that the user's flags do not disable.
func replacedHooks(generic *genericserver.Config) (names []string) {
	for name := range bootstrap {
		if !generic.DisabledPostStartHooks.Has(name) {
			names = append(names, name)
		}
	}
	return names
}

// gates returns the state of all feature gates as text.
func gates() string {
	features := utilfeature.DefaultMutableFeatureGate
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(features.GetAll())) {
		fmt.Fprintf(&b, "%s=%t ", name, features.Enabled(name))
	}
	return b.String()
}

// nameOperations sets the functions that the OpenAPI builder would set itself: the builder's closures would keep it alive, with the schemas
// of all types, for each version.
func nameOperations(generic *genericserver.Config) {
	name := func(route common.Route) (string, []string, error) {
		r, ok := route.(*restfuladapter.RouteAdapter)
		if !ok {
			return "", nil, fmt.Errorf("route %s is not one of go-restful's", route.Path())
		}
		return generic.OpenAPIConfig.GetOperationIDAndTags(r.Route)
	}
	generic.OpenAPIConfig.GetOperationIDAndTagsFromRoute = name
	generic.OpenAPIV3Config.GetOperationIDAndTagsFromRoute = name
}

// forgetDefinitions releases the schemas of all types that the configurations of the servers keep for documents that are built later. They
// can be computed again.
func forgetDefinitions(cfg *app.Config) {
	for _, generic := range []*genericserver.Config{
		cfg.KubeAPIs.ControlPlane.Generic, &cfg.ApiExtensions.GenericConfig.Config, &cfg.Aggregator.GenericConfig.Config,
	} {
		if generic.OpenAPIV3Config != nil {
			generic.OpenAPIV3Config.Definitions = nil
		}
	}
}
