package gateway

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	v1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/translate"
)

func serviceName(g *v1.Gateway) string { return g.Name + "-" + translate.Class }

// serviceOf returns the Service of a Gateway on ports such as 80/TCP, and its EndpointSlices without their owner.
func serviceOf(g *v1.Gateway, ports []string) (*corev1.Service, []*discoveryv1.EndpointSlice) {
	info := func(suffix string) metav1.ObjectMeta {
		m := metav1.ObjectMeta{Namespace: g.Namespace, Name: serviceName(g) + suffix, Labels: map[string]string{}, Annotations: map[string]string{}}
		if i := g.Spec.Infrastructure; i != nil {
			for k, v := range i.Labels {
				m.Labels[string(k)] = string(v)
			}
			for k, v := range i.Annotations {
				m.Annotations[string(k)] = string(v)
			}
		}
		m.Labels[v1.GatewayNameLabelKey] = g.Name
		return m
	}
	service := &corev1.Service{ObjectMeta: info(""), Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone}}
	service.Labels[discoveryv1.LabelManagedBy] = madeByGateway
	service.OwnerReferences = []metav1.OwnerReference{ownedBy(g, v1.SchemeGroupVersion.WithKind("Gateway"))}
	var sliced []discoveryv1.EndpointPort
	for _, p := range slices.Sorted(slices.Values(ports)) {
		text, transport, _ := strings.Cut(p, "/")
		number, _ := strconv.ParseUint(text, 10, 16)
		name, port, protocol := strings.ToLower(transport)+"-"+text, int32(number), corev1.Protocol(transport)
		service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{Name: name, Port: port, Protocol: protocol, TargetPort: intstr.FromInt32(port)})
		sliced = append(sliced, discoveryv1.EndpointPort{Name: &name, Port: &port, Protocol: &protocol})
	}
	families := []*discoveryv1.EndpointSlice{
		{ObjectMeta: info("-ipv4"), AddressType: discoveryv1.AddressTypeIPv4, Ports: sliced}, {ObjectMeta: info("-ipv6"), AddressType: discoveryv1.AddressTypeIPv6, Ports: sliced},
	}
	for _, s := range families {
		s.Labels[discoveryv1.LabelServiceName], s.Labels[discoveryv1.LabelManagedBy] = service.Name, madeByGateway
	}
	for _, a := range g.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Value); err == nil {
			s, ready := families[0], true
			if ip.Is6() {
				s = families[1]
			}
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a.Value}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}})
		}
	}
	return service, families
}

// ownedBy returns the reference to an owner, which may be deleted before what it owns.
func ownedBy(o metav1.Object, kind schema.GroupVersionKind) metav1.OwnerReference {
	r := *metav1.NewControllerRef(o, kind)
	r.BlockOwnerDeletion = nil
	return r
}
