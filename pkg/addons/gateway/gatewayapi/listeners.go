package gatewayapi

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/translate"
	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// listener is one of a Gateway, of itself or of a ListenerSet.
type listener struct {
	owner    metav1.Object
	kind     string // of the owner
	gateway  *gatewayState
	set      *setState // nil if the owner is the Gateway
	name     v1.SectionName
	config   string // what configName returns, once it is known
	host     string
	port     int32
	protocol v1.ProtocolType
	tls      *v1.ListenerTLSConfig
	allowed  *v1.AllowedRoutes

	kinds      []v1.RouteGroupKind
	rejected   *fault // why it is not accepted
	conflicted *fault // with another listener of the Gateway, which is also why it is not accepted
	unresolved *fault // why a reference of it is not used
	broken     *fault // why it cannot serve, though it is accepted
	attached   map[types.UID]bool
}

// configName is its name in the configuration.
func (l *listener) configName() string {
	if l.config == "" { // each of its routes asks for it
		l.config = fmt.Sprintf("%s/%s/%s/%s", strings.ToLower(l.kind), l.owner.GetNamespace(), l.owner.GetName(), l.name)
	}
	return l.config
}

// valid reports whether routes can be attached.
func (l *listener) valid() bool { return l.rejected == nil && l.conflicted == nil }

// portKey is a port of the addresses of a Gateway, or of those of the servers.
type portKey struct {
	owner types.UID // of the Gateway if it has addresses of its own
	port  int32
	udp   bool
}

// portUse is what a port is used for.
type portUse struct {
	protocol string // of the family of protocols that can share it
	by       string // for messages
}

// family returns which protocols can share a port: those that tell hosts apart in the same way.
func family(p v1.ProtocolType) string {
	switch p {
	case v1.HTTPSProtocolType, v1.TLSProtocolType:
		return "TLS"
	}
	return string(p)
}

// reservePorts notes the ports of servers that others have: Services of type LoadBalancer, and Ingresses.
func (t *translation) reservePorts() {
	if t.in.Ingresses {
		t.ports[portKey{port: 80}] = portUse{family(v1.HTTPProtocolType), "Ingresses"}
		t.ports[portKey{port: 443}] = portUse{family(v1.HTTPSProtocolType), "Ingresses"}
	}
	all := slices.Clone(t.in.Services)
	slices.SortFunc(all, translate.Older)
	for _, s := range all {
		if s.Spec.Type != corev1.ServiceTypeLoadBalancer || !slices.ContainsFunc(s.Status.LoadBalancer.Ingress, func(i corev1.LoadBalancerIngress) bool {
			ip, err := netip.ParseAddr(i.IP)
			return err == nil && slices.Contains(t.in.Node, ip)
		}) {
			continue
		}
		for _, p := range s.Spec.Ports {
			t.ports[portKey{port: p.Port, udp: p.Protocol == corev1.ProtocolUDP}] = portUse{"Service", fmt.Sprintf("Service %s of type LoadBalancer", keyOf(s))}
		}
	}
}

// listener checks a listener, and adds it to the configuration if it can serve.
func (t *translation) listener(l *listener) {
	l.attached = map[types.UID]bool{}
	l.routeKinds()
	if len(supported(l.protocol)) == 0 {
		l.rejected = faulty(v1.ListenerReasonUnsupportedProtocol, "protocol %s is not supported", l.protocol)
		return
	}
	if l.conflicts(); l.valid() {
		t.yield(l)
	}
	if l.gateway.rejected != nil || !l.valid() {
		return
	}
	out := gateway.Listener{Name: l.configName(), Port: uint16(l.port), Host: l.host}
	for _, a := range l.gateway.own {
		out.Addresses = append(out.Addresses, a.String())
	}
	out.Protocol = gateway.Protocol(l.protocol)
	switch {
	case l.protocol == v1.TLSProtocolType && l.mode() == v1.TLSModePassthrough:
		out.Protocol = gateway.Passthrough
	case l.protocol == v1.TLSProtocolType, l.protocol == v1.HTTPSProtocolType:
		t.secure(l, &out)
	}
	if !l.valid() || l.broken != nil {
		return
	}
	if !t.claimPort(l) || l.gateway.pending {
		return
	}
	t.inUse[out.Name] = true
	t.hold(l, l.host, l.kind, l.owner)
	t.Config.Listeners = append(t.Config.Listeners, out)
}

func (l *listener) mode() v1.TLSModeType {
	if l.tls == nil {
		return v1.TLSModeTerminate
	}
	return or(l.tls.Mode, v1.TLSModeTerminate)
}

// claimPort reports whether a listener gets its port, which another protocol may have.
func (t *translation) claimPort(l *listener) bool {
	key := portKey{port: l.port, udp: l.protocol == v1.UDPProtocolType}
	if len(l.gateway.own) > 0 {
		key.owner = l.gateway.object.UID
	}
	use := portUse{family(l.protocol), fmt.Sprintf("Gateway %s", keyOf(l.gateway.object))}
	if other, taken := t.ports[key]; taken && other.protocol != use.protocol {
		l.rejected = faulty(v1.ListenerReasonPortUnavailable, "port %d of the servers belongs to %s: choose another port, or give the Gateway an address of its own (--lb-pool)", l.port, other.by)
		return false
	}
	t.ports[key] = use
	return true
}

// supported returns the kinds of routes that listeners of a protocol serve.
func supported(p v1.ProtocolType) []v1.Kind {
	switch p {
	case v1.HTTPProtocolType, v1.HTTPSProtocolType:
		return []v1.Kind{"HTTPRoute", "GRPCRoute"}
	case v1.TLSProtocolType:
		return []v1.Kind{"TLSRoute"}
	case v1.TCPProtocolType:
		return []v1.Kind{"TCPRoute"}
	case v1.UDPProtocolType:
		return []v1.Kind{"UDPRoute"}
	}
	return nil
}

// routeKinds determines the kinds of routes that may attach.
func (l *listener) routeKinds() {
	l.kinds = []v1.RouteGroupKind{}
	group := v1.Group(v1.GroupName)
	can := supported(l.protocol)
	if l.allowed == nil || len(l.allowed.Kinds) == 0 {
		for _, kind := range can {
			l.kinds = append(l.kinds, v1.RouteGroupKind{Group: &group, Kind: kind})
		}
		return
	}
	for _, k := range l.allowed.Kinds {
		if or(k.Group, group) != group || !slices.Contains(can, k.Kind) {
			l.unresolved = faulty(v1.ListenerReasonInvalidRouteKinds, "listeners of protocol %s do not serve routes of kind %s", l.protocol, k.Kind)
			continue
		}
		l.kinds = append(l.kinds, v1.RouteGroupKind{Group: &group, Kind: k.Kind})
	}
}

// held are the listeners of a Gateway that have a port, all of one family of protocols. ListenerSets can add any number.
type held struct {
	first *listener
	hosts map[string]*listener
}

// hold notes that a listener has its port and host.
func (l *listener) hold() {
	key := portKey{port: l.port, udp: l.protocol == v1.UDPProtocolType}
	of := l.gateway.held[key]
	if of == nil {
		of = &held{first: l, hosts: map[string]*listener{}}
		if l.gateway.held == nil {
			l.gateway.held = map[portKey]*held{}
		}
		l.gateway.held[key] = of
	}
	of.hosts[l.host] = l
}

// conflicts finds another listener of the Gateway that comes first and has the same port and host, or the port for another protocol.
func (l *listener) conflicts() {
	of := l.gateway.held[portKey{port: l.port, udp: l.protocol == v1.UDPProtocolType}]
	if of == nil {
		return
	}
	if family(of.first.protocol) != family(l.protocol) {
		l.conflicted = faulty(v1.ListenerReasonProtocolConflict, "listener %s has port %d for protocol %s", of.first.name, l.port, of.first.protocol)
	} else if other := of.hosts[l.host]; other != nil {
		l.conflicted = faulty(v1.ListenerReasonHostnameConflict, "listener %s has port %d for %s", other.name, l.port, cmp.Or(l.host, "all hosts"))
	}
}
