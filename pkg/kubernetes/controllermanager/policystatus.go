package controllermanager

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	cacheddiscovery "k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/scheme"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/config"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	"k8s.io/kubernetes/pkg/controller/validatingadmissionpolicystatus"
	"k8s.io/kubernetes/pkg/generated/openapi"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/scheme"
)

// policyStatus is upstream's controller that checks the types in ValidatingAdmissionPolicies. It runs apart from the others: with them it
// would get the schemas of all types at the start, 7 MB for policies that most clusters do not have. Here the schemas are made when there
// is a policy to check.
const policyStatus = names.ValidatingAdmissionPolicyStatusController

// runPolicyStatus runs the controller until ctx is done.
func runPolicyStatus(ctx context.Context, cfg *config.CompletedConfig) error {
	builder := clientbuilder.NewDynamicClientBuilder(
		restclient.AnonymousClientConfig(cfg.Kubeconfig), cfg.Client.CoreV1(), metav1.NamespaceSystem)
	client, err := builder.Client(policyStatus)
	if err != nil {
		return fmt.Errorf("making the client of %s: %w", policyStatus, err)
	}
	// Types without a built-in schema are looked up by discovery at each check, because custom resources may be added and removed.
	found := cacheddiscovery.NewMemCacheClient(client.Discovery())
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(found)
	factory := informers.NewSharedInformerFactory(cfg.Client, 0)
	controller, err := validatingadmissionpolicystatus.NewController(
		factory.Admissionregistration().V1().ValidatingAdmissionPolicies(),
		client.AdmissionregistrationV1().ValidatingAdmissionPolicies(),
		&validating.TypeChecker{
			SchemaResolver: (&lazySchemas{forget: mapper.Reset}).Combine(&resolver.ClientDiscoveryResolver{Discovery: client.Discovery()}),
			RestMapper:     mapper,
		})
	if err != nil {
		return fmt.Errorf("making %s: %w", policyStatus, err)
	}
	factory.Start(ctx.Done())
	controller.Run(ctx, int(cfg.ComponentConfig.ValidatingAdmissionPolicyStatusController.ConcurrentPolicySyncs))
	return nil
}

// schemasIdle is how long the schemas are kept after the last use.
const schemasIdle = time.Minute

// lazySchemas resolves the built-in types from schemas that are made when they are needed.
type lazySchemas struct {
	forget func() // called when the schemas are dropped

	mu      sync.Mutex
	schemas *resolver.DefinitionsSchemaResolver
	drop    *time.Timer
}

// ResolveSchema implements resolver.SchemaResolver.
func (l *lazySchemas) ResolveSchema(gvk schema.GroupVersionKind) (*spec.Schema, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.schemas == nil {
		l.schemas = resolver.NewDefinitionsSchemaResolver(openapi.GetOpenAPIDefinitions, scheme.Scheme, apiextensions.Scheme)
		l.drop = time.AfterFunc(schemasIdle, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.schemas = nil
			l.forget()
		})
	}
	l.drop.Reset(schemasIdle)
	return l.schemas.ResolveSchema(gvk)
}

// Combine returns a resolver that uses next for types without a built-in schema.
func (l *lazySchemas) Combine(next resolver.SchemaResolver) resolver.SchemaResolver {
	return either{l, next}
}

type either struct{ first, second resolver.SchemaResolver }

// ResolveSchema implements resolver.SchemaResolver.
func (e either) ResolveSchema(gvk schema.GroupVersionKind) (*spec.Schema, error) {
	if s, err := e.first.ResolveSchema(gvk); err == nil {
		return s, nil
	}
	return e.second.ResolveSchema(gvk)
}

// apart reports whether this package runs the policy status controller: not if the user set the flag of controllers.
func (c ControllerManager) apart() bool {
	return slices.Contains(c.flags(), controllers)
}
