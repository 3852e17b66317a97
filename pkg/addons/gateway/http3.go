package gateway

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// http3Ports returns the ports of HTTPS that clients reach with HTTP/3 too: those whose datagrams no listener of UDP has and, at an address of this
// node or of one of the listeners, no Service.
func http3Ports(listeners []gateway.Listener, services []*corev1.Service, node []netip.Addr) (out []uint16) {
	for _, l := range listeners {
		if l.Protocol != gateway.HTTPS || slices.Contains(out, l.Port) {
			continue
		}
		addresses := slices.Clone(node)
		for _, other := range listeners {
			for _, text := range other.Addresses {
				if a, err := netip.ParseAddr(text); err == nil && other.Port == l.Port {
					addresses = append(addresses, a)
				}
			}
		}
		taken := slices.ContainsFunc(listeners, func(other gateway.Listener) bool { return other.Port == l.Port && other.Protocol == gateway.UDP })
		if !taken && !slices.ContainsFunc(services, func(s *corev1.Service) bool { return takesDatagrams(s, l.Port, addresses) }) {
			out = append(out, l.Port)
		}
	}
	slices.Sort(out)
	return out
}

// takesDatagrams reports whether a Service gets what is sent to a port of UDP at one of the addresses.
func takesDatagrams(s *corev1.Service, port uint16, addresses []netip.Addr) bool {
	at := func(text string) bool {
		a, err := netip.ParseAddr(text)
		return err == nil && slices.Contains(addresses, a)
	}
	given := slices.ContainsFunc(s.Status.LoadBalancer.Ingress, func(i corev1.LoadBalancerIngress) bool { return at(i.IP) }) || slices.ContainsFunc(s.Spec.ExternalIPs, at)
	return slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool {
		return p.Protocol == corev1.ProtocolUDP && (given && p.Port == int32(port) || p.NodePort == int32(port))
	})
}
