package gatewayapi

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "sigs.k8s.io/gateway-api/apis/v1"

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
	for _, o := range t.in.HTTPRoutes {
		r := &route{object: o, kind: "HTTPRoute", parents: o.Spec.ParentRefs, hosts: o.Spec.Hostnames}
		r.rules = func(g *gatewayState) compiled { return t.httpRules(r, g, o.Spec.Rules) }
		t.routes = append(t.routes, r)
	}
	for _, o := range t.in.GRPCRoutes {
		r := &route{object: o, kind: "GRPCRoute", parents: o.Spec.ParentRefs, hosts: o.Spec.Hostnames}
		r.rules = func(g *gatewayState) compiled { return t.grpcRules(r, g, o.Spec.Rules) }
		t.routes = append(t.routes, r)
	}
	for _, o := range t.in.TLSRoutes {
		r := &route{object: o, kind: "TLSRoute", parents: o.Spec.ParentRefs, hosts: o.Spec.Hostnames}
		r.rules = func(g *gatewayState) (c compiled) {
			for _, rule := range o.Spec.Rules {
				c.streams = append(c.streams, t.stream(r, rule.BackendRefs))
			}
			return c
		}
		t.routes = append(t.routes, r)
	}
	for _, o := range t.in.TCPRoutes {
		r := &route{object: o, kind: "TCPRoute", parents: o.Spec.ParentRefs}
		r.rules = func(g *gatewayState) (c compiled) {
			for _, rule := range o.Spec.Rules {
				c.streams = append(c.streams, t.stream(r, rule.BackendRefs))
			}
			return c
		}
		t.routes = append(t.routes, r)
	}
	for _, o := range t.in.UDPRoutes {
		r := &route{object: o, kind: "UDPRoute", parents: o.Spec.ParentRefs}
		r.rules = func(g *gatewayState) (c compiled) {
			for _, rule := range o.Spec.Rules {
				c.streams = append(c.streams, t.stream(r, rule.BackendRefs))
			}
			return c
		}
		t.routes = append(t.routes, r)
	}
	t.routes = slices.DeleteFunc(t.routes, func(r *route) bool { return r.object.GetDeletionTimestamp() != nil })
	slices.SortFunc(t.routes, func(a, b *route) int {
		if c := older(a.object, b.object); c != 0 {
			return c
		}
		return strings.Compare(string(a.kind), string(b.kind))
	})
}
