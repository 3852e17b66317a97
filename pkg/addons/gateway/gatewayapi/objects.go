// Package gatewayapi makes the configuration of a node's gateway from objects of the Gateway API, and says what their status is. It is pure: the
// same objects give the same result.
//
// Whoever may create Gateways decides who may attach routes to them (allowedRoutes) and listeners (allowedListeners). References to objects of
// other namespaces need a ReferenceGrant there.
package gatewayapi

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/translate"
	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// Objects are what a translation reads.
type Objects struct {
	Classes      []*v1.GatewayClass
	Gateways     []*v1.Gateway
	ListenerSets []*v1.ListenerSet
	HTTPRoutes   []*v1.HTTPRoute
	GRPCRoutes   []*v1.GRPCRoute
	TLSRoutes    []*v1.TLSRoute
	TCPRoutes    []*v1.TCPRoute
	UDPRoutes    []*v1.UDPRoute
	Grants       []*v1.ReferenceGrant
	Policies     []*v1.BackendTLSPolicy

	Services     []*corev1.Service
	Slices       []*discoveryv1.EndpointSlice
	Certificates map[types.NamespacedName]translate.Certificate // those of Secrets of type kubernetes.io/tls
	Authorities  map[types.NamespacedName]string                // the values of ca.crt of ConfigMaps
	Namespaces   map[string]map[string]string                   // the labels of each namespace
	// Node are the addresses of the node.
	Node []netip.Addr
	// Pools says that Gateways may get addresses of their own: one without any address in its status is not served yet.
	Pools bool
	// Version is that of the installed definitions, "v1.6.3", and Experimental says that they are of the experimental channel.
	Version      string
	Experimental bool
	// Ingresses says that Ingresses are served on ports 80 and 443 of the node's addresses, and Hosts are theirs there: a name, "*." and a name for one
	// more label, or empty for what has no rules of its own. Yields are names below these wildcards that they leave to older objects, sorted.
	Ingresses bool
	Hosts     map[string]types.NamespacedName
	Yields    []string
	Orders    *translate.Orders // takes the certificates that are wanted by ACME, after Held and those of Ingresses; nil if there is no ACME server
}

// Result is what comes of a translation.
type Result struct {
	Config    gateway.Config
	Endpoints gateway.Endpoints
	// Ours are the Gateways of our classes.
	Ours []*v1.Gateway

	done *translation
}

// OurClasses returns the names of the classes that the gateway serves.
func OurClasses(classes []*v1.GatewayClass) map[v1.ObjectName]*v1.GatewayClass {
	ours := map[v1.ObjectName]*v1.GatewayClass{}
	for _, c := range classes {
		if c.Spec.ControllerName == translate.Controller {
			ours[v1.ObjectName(c.Name)] = c
		}
	}
	return ours
}

// OurGateways returns the Gateways of our classes.
func OurGateways(classes []*v1.GatewayClass, all []*v1.Gateway) (ours []*v1.Gateway) {
	names := OurClasses(classes)
	for _, g := range all {
		if names[g.Spec.GatewayClassName] != nil && g.DeletionTimestamp == nil {
			ours = append(ours, g)
		}
	}
	return ours
}

func keyOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// or returns what a pointer points to, or a default.
func or[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}
