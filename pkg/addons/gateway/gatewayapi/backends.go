package gatewayapi

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/translate"
	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// serviceOf returns the Service and its port that a route refers to, or why there is none.
func (t *translation) serviceOf(r *route, ref v1.BackendObjectReference) (*corev1.Service, corev1.ServicePort, *fault) {
	none := corev1.ServicePort{}
	if or(ref.Group, "") != "" || or(ref.Kind, kindService) != kindService {
		return nil, none, faulty(v1.RouteReasonInvalidKind, "backends are Services, not objects of kind %s", or(ref.Kind, kindService))
	}
	key := types.NamespacedName{Namespace: string(or(ref.Namespace, v1.Namespace(r.object.GetNamespace()))), Name: string(ref.Name)}
	if !t.permitted(string(r.kind), r.object.GetNamespace(), "", kindService, key.Namespace, key.Name) {
		return nil, none, faulty(v1.RouteReasonRefNotPermitted, "Service %s is in another namespace, which has no ReferenceGrant for it", key)
	}
	service := t.services[key]
	if service == nil {
		return nil, none, faulty(v1.RouteReasonBackendNotFound, "there is no Service %s", key)
	}
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		return nil, none, faulty(v1.RouteReasonUnsupportedValue, "Service %s is of type ExternalName: the gateway only reaches endpoints in the cluster", key)
	}
	if ref.Port == nil {
		return nil, none, faulty(v1.RouteReasonUnsupportedValue, "the reference to Service %s has no port", key)
	}
	protocol := corev1.ProtocolTCP
	if r.kind == "UDPRoute" {
		protocol = corev1.ProtocolUDP
	}
	at := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool {
		return p.Port == *ref.Port && (p.Protocol == protocol || p.Protocol == "" && protocol == corev1.ProtocolTCP)
	})
	if at < 0 {
		return nil, none, faulty(v1.RouteReasonBackendNotFound, "Service %s has no port %d of protocol %s", key, *ref.Port, protocol)
	}
	return service, service.Spec.Ports[at], nil
}

// backend returns where a reference leads. If that is nowhere, the backend keeps its weight: its part of the requests is answered with an error.
func (t *translation) backend(r *route, g *gatewayState, ref v1.BackendObjectReference, weight *int32) gateway.Backend {
	out := gateway.Backend{Weight: or(weight, 1)}
	service, port, problem := t.serviceOf(r, ref)
	if problem != nil {
		r.unresolve(problem)
		return out
	}
	key := t.endpoints(service, port)
	if r.kind != "HTTPRoute" && r.kind != "GRPCRoute" {
		out.Endpoints = key
		return out
	}
	out.Protocol = translate.Protocol(port)
	if r.kind == "GRPCRoute" && out.Protocol == gateway.ToHTTP {
		out.Protocol = gateway.ToH2C
	}
	if p := t.policyFor(g, service, port); p != nil {
		if p.rejected != nil {
			return out // never without the TLS that it asks for
		}
		verify := p.tls
		verify.Certificate = g.clientCertificate
		out.TLS = &verify
	}
	out.Endpoints = key
	return out
}

// endpoints returns the key of the endpoints of a Service's port, which are then in the result.
func (t *translation) endpoints(service *corev1.Service, port corev1.ServicePort) string {
	number := strconv.Itoa(int(port.Port))
	if port.Protocol == corev1.ProtocolUDP {
		number += "/UDP"
	}
	key := gateway.Key(service.Namespace, service.Name, number)
	if _, known := t.Endpoints[key]; !known {
		t.Endpoints[key] = translate.EndpointsOf(t.slices[keyOf(service)], service, port)
	}
	return key
}

// stream returns a stream of connections to backends.
func (t *translation) stream(r *route, refs []v1.BackendRef) (s gateway.Stream) {
	for _, ref := range refs {
		s.Backends = append(s.Backends, t.backend(r, nil, ref.BackendObjectReference, ref.Weight))
	}
	return s
}
