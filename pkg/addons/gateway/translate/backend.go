package translate

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// backend leads a route to a Service of the Ingress' namespace. It stays without a backend if that is not possible.
func (t *translation) backend(i *networkingv1.Ingress, r *gateway.Route, from networkingv1.IngressBackend) {
	if from.Service == nil {
		t.problem(i, "BackendNotSupported", "path %s of %s has a resource as its backend: only Services are served", r.Path, named(r.Host))
		return
	}
	key := types.NamespacedName{Namespace: i.Namespace, Name: from.Service.Name}
	service := t.services[key]
	if service == nil {
		t.problem(i, "BackendNotFound", "there is no Service %s", key)
		return
	}
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		t.problem(i, "BackendNotSupported", "Service %s is of type ExternalName: the gateway only reaches endpoints in the cluster", key)
		return
	}
	at := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool {
		if from.Service.Port.Name != "" {
			return p.Name == from.Service.Port.Name
		}
		return p.Port == from.Service.Port.Number
	})
	if at < 0 {
		t.problem(i, "BackendNotFound", "Service %s has no port %s", key, portName(from.Service.Port))
		return
	}
	port := service.Spec.Ports[at]
	if port.Protocol != "" && port.Protocol != corev1.ProtocolTCP {
		t.problem(i, "BackendNotSupported", "port %d of Service %s is of protocol %s: HTTP needs TCP", port.Port, key, port.Protocol)
		return
	}
	to := gateway.Backend{Endpoints: gateway.Key(key.Namespace, key.Name, strconv.Itoa(int(port.Port))), Weight: 1, Protocol: Protocol(port)}
	r.Backends = []gateway.Backend{to}
	if _, ok := t.Endpoints[to.Endpoints]; !ok {
		t.Endpoints[to.Endpoints] = EndpointsOf(t.slices[key], service, port)
	}
}

func portName(p networkingv1.ServiceBackendPort) string {
	if p.Name != "" {
		return fmt.Sprintf("%q", p.Name)
	}
	return strconv.Itoa(int(p.Number))
}

// Protocol returns how the endpoints of a port are spoken to.
func Protocol(p corev1.ServicePort) gateway.BackendProtocol {
	if p.AppProtocol != nil {
		switch *p.AppProtocol {
		case "kubernetes.io/h2c":
			return gateway.ToH2C
		case "https", "HTTPS", "kubernetes.io/wss":
			return gateway.ToHTTPS
		}
	}
	return gateway.ToHTTP
}

// EndpointsOf returns the addresses of a Service's port that are ready, by the Service's slices. While none is, it returns those that are ending
// but serve still, as kube-proxy does.
func EndpointsOf(all []*discoveryv1.EndpointSlice, service *corev1.Service, port corev1.ServicePort) []string {
	ready, ending := map[string]bool{}, map[string]bool{}
	for _, slice := range all {
		if slice.AddressType == discoveryv1.AddressTypeFQDN || len(service.Spec.IPFamilies) > 0 && string(slice.AddressType) != string(service.Spec.IPFamilies[0]) {
			continue // of two families the first is enough: the endpoints are the same pods
		}
		for _, p := range slice.Ports {
			if p.Port == nil || p.Name != nil && *p.Name != port.Name || p.Name == nil && port.Name != "" {
				continue
			}
			for _, e := range slice.Endpoints {
				into := ready
				switch is := func(b *bool, unknown bool) bool { return b == nil && unknown || b != nil && *b }; {
				case is(e.Conditions.Ready, true):
				case is(e.Conditions.Serving, false) && is(e.Conditions.Terminating, false):
					into = ending
				default:
					continue
				}
				for _, a := range e.Addresses {
					if ip, err := netip.ParseAddr(a); err == nil && elsewhere(ip) {
						into[net.JoinHostPort(a, strconv.Itoa(int(*p.Port)))] = true
					}
				}
			}
		}
	}
	if len(ready) == 0 {
		ready = ending
	}
	out := make([]string, 0, len(ready))
	for a := range ready {
		out = append(out, a)
	}
	slices.Sort(out)
	return out
}

// elsewhere reports whether an address is one that an endpoint can have. The API refuses others too: the gateway is on the node's network, where
// they would be the node's own services.
func elsewhere(ip netip.Addr) bool {
	ip = ip.Unmap()
	return !ip.IsLoopback() && !ip.IsUnspecified() && !ip.IsMulticast() && !ip.IsLinkLocalUnicast()
}
