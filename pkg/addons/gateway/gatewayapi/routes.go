package gatewayapi

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/translate"
	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// route is one of any kind.
type route struct {
	object  metav1.Object
	kind    v1.Kind
	parents []v1.ParentReference
	hosts   []v1.Hostname
	// rules translates its rules for a Gateway.
	rules func(*gatewayState) compiled

	attached    []parent
	unresolved  *fault // why a reference of it is not used
	unsupported *fault // why a rule of it is not served
	served      bool   // a rule of it is served
}

// compiled is what comes of the rules of a route, without listeners and hosts.
type compiled struct {
	routes  []gateway.Route
	streams []gateway.Stream
	served  bool // a route is one that is not refused
}

// parent is what comes of a reference to one of our Gateways or ListenerSets.
type parent struct {
	ref      v1.ParentReference
	rejected *fault
}

// unresolve notes the first reference that cannot be used.
func (r *route) unresolve(f *fault) {
	if r.unresolved == nil {
		r.unresolved = f
	}
}

// drop notes the first rule that is not served.
func (r *route) drop(f *fault) {
	if r.unsupported == nil {
		r.unsupported = f
	}
}

// readRoutes lists the routes, the oldest first.
func (t *translation) readRoutes() {
	add := func(o metav1.Object, kind v1.Kind, parents []v1.ParentReference, hosts []v1.Hostname, rules func(*route, *gatewayState) compiled) {
		r := &route{object: o, kind: kind, parents: parents, hosts: hosts}
		r.rules = func(g *gatewayState) compiled { return rules(r, g) }
		t.routes = append(t.routes, r)
	}
	for _, o := range t.in.HTTPRoutes {
		add(o, "HTTPRoute", o.Spec.ParentRefs, o.Spec.Hostnames, func(r *route, g *gatewayState) compiled { return t.httpRules(r, g, o.Spec.Rules) })
	}
	for _, o := range t.in.GRPCRoutes {
		add(o, "GRPCRoute", o.Spec.ParentRefs, o.Spec.Hostnames, func(r *route, g *gatewayState) compiled { return t.grpcRules(r, g, o.Spec.Rules) })
	}
	for _, o := range t.in.TLSRoutes {
		add(o, "TLSRoute", o.Spec.ParentRefs, o.Spec.Hostnames, streamRules(t, o.Spec.Rules, func(rule v1.TLSRouteRule) []v1.BackendRef { return rule.BackendRefs }))
	}
	for _, o := range t.in.TCPRoutes {
		add(o, "TCPRoute", o.Spec.ParentRefs, nil, streamRules(t, o.Spec.Rules, func(rule v1.TCPRouteRule) []v1.BackendRef { return rule.BackendRefs }))
	}
	for _, o := range t.in.UDPRoutes {
		add(o, "UDPRoute", o.Spec.ParentRefs, nil, streamRules(t, o.Spec.Rules, func(rule v1.UDPRouteRule) []v1.BackendRef { return rule.BackendRefs }))
	}
	t.routes = slices.DeleteFunc(t.routes, func(r *route) bool { return r.object.GetDeletionTimestamp() != nil })
	slices.SortFunc(t.routes, func(a, b *route) int {
		if c := translate.Older(a.object, b.object); c != 0 {
			return c
		}
		return strings.Compare(string(a.kind), string(b.kind))
	})
}

// streamRules translates rules of a kind that have nothing but backends.
func streamRules[R any](t *translation, rules []R, backends func(R) []v1.BackendRef) func(*route, *gatewayState) compiled {
	return func(r *route, _ *gatewayState) (c compiled) {
		for _, rule := range rules {
			c.streams = append(c.streams, t.stream(r, backends(rule)))
		}
		return c
	}
}
