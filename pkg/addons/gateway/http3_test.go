package gateway

import (
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// TestHTTP3Ports: HTTP/3 is not offered on ports whose datagrams go elsewhere.
func TestHTTP3Ports(t *testing.T) {
	listeners := []gateway.Listener{
		{Name: "a", Port: 443, Protocol: gateway.HTTPS}, {Name: "b", Port: 443, Protocol: gateway.HTTPS, Host: "b.test"}, {Name: "c", Port: 80, Protocol: gateway.HTTP},
		{Name: "d", Port: 8443, Protocol: gateway.HTTPS, Addresses: []string{"192.0.2.7"}}, {Name: "e", Port: 9443, Protocol: gateway.HTTPS}, {Name: "f", Port: 9443, Protocol: gateway.UDP},
	}
	service := func(address string, external string, port, node int32, protocol corev1.Protocol) *corev1.Service {
		s := &corev1.Service{}
		s.Spec.Ports = []corev1.ServicePort{{Port: port, NodePort: node, Protocol: protocol}}
		if external != "" {
			s.Spec.ExternalIPs = []string{external}
		}
		if address != "" {
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address}}
		}
		return s
	}
	for want, services := range map[string][]*corev1.Service{
		"[443 8443]": {service("", "", 443, 0, corev1.ProtocolUDP), service("10.0.0.1", "", 443, 0, corev1.ProtocolTCP), service("10.0.0.9", "", 443, 0, corev1.ProtocolUDP)},
		"[443]":      {service("192.0.2.7", "", 8443, 0, corev1.ProtocolUDP)},
		"[8443]":     {service("10.0.0.1", "", 443, 0, corev1.ProtocolUDP), service("10.0.0.1", "", 8443, 0, corev1.ProtocolTCP)},
		"[]":         {service("", "10.0.0.1", 443, 0, corev1.ProtocolUDP), service("", "", 53, 8443, corev1.ProtocolUDP)},
	} {
		if got := http3Ports(listeners, services, []netip.Addr{netip.MustParseAddr("10.0.0.1")}); fmt.Sprint(got) != want {
			t.Errorf("%v, want %s", got, want)
		}
	}
}
