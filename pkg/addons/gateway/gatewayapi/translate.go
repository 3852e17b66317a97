package gatewayapi

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/translate"
	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// translation is one that goes on.
type translation struct {
	Result
	in       Objects
	services map[types.NamespacedName]*corev1.Service
	slices   map[types.NamespacedName][]*discoveryv1.EndpointSlice
	grants   map[string][]*v1.ReferenceGrant // by namespace
	policies map[types.NamespacedName][]*policy

	gateways    []*gatewayState // the oldest first
	byName      map[types.NamespacedName]*gatewayState
	sets        []*setState
	setNamed    map[types.NamespacedName]*setState
	routes      []*route
	allPolicies []*policy
	ports       map[portKey]portUse
	held        map[string]translate.Holder // hosts where Ingresses are served; nil when they are known already
	expressions gateway.Expressions
	inUse       map[string]bool                // the names of listeners in the configuration
	chosen      map[string]gateway.Certificate // by source
}

// Translate translates. The result has no listeners if there is no Gateway of our classes.
func Translate(o Objects) Result {
	t := read(o, nil)
	for _, r := range t.routes {
		t.attach(r)
	}
	for _, source := range t.usedCertificates() {
		t.Config.Certificates = append(t.Config.Certificates, t.chosen[source])
	}
	t.Result.done = t
	return t.Result
}

// read reads everything, and adds the listeners to the configuration.
func read(o Objects, held map[string]translate.Holder) *translation {
	t := &translation{
		in: o, services: map[types.NamespacedName]*corev1.Service{}, slices: map[types.NamespacedName][]*discoveryv1.EndpointSlice{},
		grants: map[string][]*v1.ReferenceGrant{}, policies: map[types.NamespacedName][]*policy{}, byName: map[types.NamespacedName]*gatewayState{},
		setNamed: map[types.NamespacedName]*setState{}, ports: map[portKey]portUse{}, held: held, expressions: gateway.Expressions{}, inUse: map[string]bool{}, chosen: map[string]gateway.Certificate{},
	}
	t.Endpoints = gateway.Endpoints{}
	for _, s := range o.Services {
		t.services[keyOf(s)] = s
	}
	for _, s := range o.Slices {
		of := types.NamespacedName{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}
		t.slices[of] = append(t.slices[of], s)
	}
	for _, g := range o.Grants {
		t.grants[g.Namespace] = append(t.grants[g.Namespace], g)
	}
	t.Ours = OurGateways(o.Classes, o.Gateways)
	slices.SortFunc(t.Ours, translate.Older)
	t.readPolicies()
	t.reservePorts()
	for _, g := range t.Ours {
		s := t.gateway(g)
		t.gateways = append(t.gateways, s)
		t.byName[keyOf(g)] = s
	}
	t.listenerSets()
	for _, g := range t.gateways {
		for _, l := range g.listeners {
			if t.listener(l); l.valid() {
				l.hold()
			}
		}
	}
	t.readRoutes()
	return t
}

// permitted reports whether an object of a namespace may refer to one of another.
func (t *translation) permitted(kind, namespace string, toGroup, toKind, toNamespace, toName string) bool {
	if namespace == toNamespace {
		return true
	}
	return slices.ContainsFunc(t.grants[toNamespace], func(g *v1.ReferenceGrant) bool {
		return slices.ContainsFunc(g.Spec.From, func(f v1.ReferenceGrantFrom) bool {
			return f.Group == v1.GroupName && string(f.Kind) == kind && string(f.Namespace) == namespace
		}) && slices.ContainsFunc(g.Spec.To, func(to v1.ReferenceGrantTo) bool {
			return string(to.Group) == toGroup && string(to.Kind) == toKind && (to.Name == nil || *to.Name == "" || string(*to.Name) == toName)
		})
	})
}

// host returns a host name as the configuration has it.
func host(name *v1.Hostname) string { return strings.ToLower(string(or(name, ""))) }
