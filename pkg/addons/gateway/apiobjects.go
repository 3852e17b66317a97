package gateway

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	v1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/gatewayapi"
	"github.com/coracle-dev/coracle/pkg/addons/gateway/translate"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// hasStatusOfOurs reports whether an object still has an entry of ours in its status.
func (f *apiFeed) hasStatusOfOurs() bool {
	for _, w := range f.rest {
		for _, o := range w.store.List() {
			if r, ok := routeStatusOf(o); ok && slices.ContainsFunc(r.Parents, func(p v1.RouteParentStatus) bool { return p.ControllerName == translate.Controller }) {
				return true
			}
		}
	}
	return false
}

// listed returns the objects of a kind.
func listed[T any](plural string, w watches) []T {
	if !w.has(plural) {
		return nil
	}
	return kube.ListOf[T](w[plural].store)
}

// objects returns what there is, without the objects that Ingresses refer to as well.
func (f *apiFeed) objects() gatewayapi.Objects {
	o := gatewayapi.Objects{
		Classes: listed[*v1.GatewayClass](gatewayClasses, f.first), Gateways: listed[*v1.Gateway](gateways, f.first),
		ListenerSets: listed[*v1.ListenerSet]("listenersets", f.rest), HTTPRoutes: listed[*v1.HTTPRoute]("httproutes", f.rest),
		GRPCRoutes: listed[*v1.GRPCRoute]("grpcroutes", f.rest), TLSRoutes: listed[*v1.TLSRoute]("tlsroutes", f.rest),
		TCPRoutes: listed[*v1.TCPRoute]("tcproutes", f.rest), UDPRoutes: listed[*v1.UDPRoute]("udproutes", f.rest),
		Grants: listed[*v1.ReferenceGrant]("referencegrants", f.rest), Policies: listed[*v1.BackendTLSPolicy]("backendtlspolicies", f.rest),
		Namespaces: map[string]map[string]string{}, Authorities: map[types.NamespacedName]string{},
	}
	o.Version, o.Experimental = f.installed()
	for _, n := range listed[*corev1.Namespace](namespaces, f.rest) {
		o.Namespaces[n.Name] = n.Labels
	}
	for _, c := range listed[*corev1.ConfigMap](configMaps, f.authorities) {
		if text, ok := c.Data[corev1.ServiceAccountRootCAKey]; ok {
			o.Authorities[types.NamespacedName{Namespace: c.Namespace, Name: c.Name}] = text
		}
	}
	return o
}

// stores returns the stores of all kinds whose objects are known.
func (f *apiFeed) stores() map[string]cache.Store {
	out := map[string]cache.Store{}
	for _, w := range []watches{f.first, f.rest} {
		for plural, one := range w {
			if w.has(plural) {
				out[plural] = one.store
			}
		}
	}
	return out
}
