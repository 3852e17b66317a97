package kubedns

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-dev/coracle/pkg/network/clusterdns"
)

// sliceSize is the number of nodes in a slice. Small slices are cheaper: each write of a slice is sent to every kube-proxy.
const sliceSize = 100

// node is a node with the addresses of its name server.
type node struct {
	name  string
	addrs []netip.Addr
}

// plan has the slices to write.
type plan struct{ create, update, remove []*discoveryv1.EndpointSlice }

// plan compares the nodes with the slices. A node has one endpoint per address family. It stays in its slice, so that a node that is
// added or removed changes one slice.
func (k KubeDNS) plan(nodes []node, live []*discoveryv1.EndpointSlice) plan {
	slices.SortFunc(nodes, func(a, b node) int { return strings.Compare(a.name, b.name) })
	slices.SortFunc(live, func(a, b *discoveryv1.EndpointSlice) int { return strings.Compare(a.Name, b.Name) })
	var p plan
	for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		k.planFamily(&p, family, nodes, live)
	}
	return p
}

func (k KubeDNS) planFamily(p *plan, family discoveryv1.AddressType, nodes []node, live []*discoveryv1.EndpointSlice) {
	missing := map[string]netip.Addr{} // nodes that are in no slice yet
	for _, n := range nodes {
		if addr, ok := ofFamily(n.addrs, family); ok {
			missing[n.name] = addr
		}
	}
	var next []*discoveryv1.EndpointSlice
	for _, s := range live {
		if s.AddressType == family {
			next = append(next, k.newSlice(family, s.Name, keepExisting(s.Endpoints, missing)))
		}
	}
	for _, n := range nodes {
		if addr, ok := missing[n.name]; ok {
			next = k.addEndpoint(next, family, endpoint(n.name, addr))
		}
	}
	for _, s := range next {
		i := slices.IndexFunc(live, func(l *discoveryv1.EndpointSlice) bool { return l.Name == s.Name })
		switch {
		case i < 0:
			p.create = append(p.create, s)
		case len(s.Endpoints) == 0:
			p.remove = append(p.remove, live[i])
		case !equalSlices(live[i], s):
			s.ResourceVersion = live[i].ResourceVersion
			p.update = append(p.update, s)
		}
	}
}

// keepExisting returns the endpoints of nodes that still exist, with their present addresses, and deletes the nodes from missing.
func keepExisting(endpoints []discoveryv1.Endpoint, missing map[string]netip.Addr) []discoveryv1.Endpoint {
	var out []discoveryv1.Endpoint
	for _, e := range endpoints {
		if e.NodeName == nil {
			continue
		}
		if addr, ok := missing[*e.NodeName]; ok {
			out = append(out, endpoint(*e.NodeName, addr))
			delete(missing, *e.NodeName)
		}
	}
	return out
}

// addEndpoint adds an endpoint to the first slice with room, or to a new one.
func (k KubeDNS) addEndpoint(all []*discoveryv1.EndpointSlice, family discoveryv1.AddressType, e discoveryv1.Endpoint) []*discoveryv1.EndpointSlice {
	for _, s := range all {
		if len(s.Endpoints) < sliceSize {
			s.Endpoints = append(s.Endpoints, e)
			return all
		}
	}
	name := ""
	for i := 1; name == "" || slices.ContainsFunc(all, func(s *discoveryv1.EndpointSlice) bool { return s.Name == name }); i++ {
		name = fmt.Sprintf("%s-coracle-%s-%d", clusterdns.Service, suffix[family], i)
	}
	return append(all, k.newSlice(family, name, []discoveryv1.Endpoint{e}))
}

var suffix = map[discoveryv1.AddressType]string{discoveryv1.AddressTypeIPv4: "ipv4", discoveryv1.AddressTypeIPv6: "ipv6"}

// newSlice returns a slice with the labels and ports of the Service.
func (k KubeDNS) newSlice(family discoveryv1.AddressType, name string, endpoints []discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	port := int32(clusterdns.Port)
	udp, tcp := corev1.ProtocolUDP, corev1.ProtocolTCP
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Namespace: clusterdns.Namespace, Labels: k.labels()},
		AddressType: family,
		Endpoints:   endpoints,
		Ports: []discoveryv1.EndpointPort{
			{Name: new("dns"), Port: &port, Protocol: &udp},
			{Name: new("dns-tcp"), Port: &port, Protocol: &tcp},
		},
	}
}

func endpoint(nodeName string, addr netip.Addr) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{
		Addresses:  []string{addr.String()},
		NodeName:   &nodeName,
		Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
	}
}

func ofFamily(addrs []netip.Addr, family discoveryv1.AddressType) (netip.Addr, bool) {
	for _, a := range addrs {
		if a.Is4() == (family == discoveryv1.AddressTypeIPv4) {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// equalSlices compares the fields that newSlice sets: the API server adds defaults to others.
func equalSlices(live, want *discoveryv1.EndpointSlice) bool {
	if len(live.Endpoints) != len(want.Endpoints) {
		return false
	}
	for i, e := range want.Endpoints {
		l := live.Endpoints[i]
		if l.NodeName == nil || *l.NodeName != *e.NodeName || !slices.Equal(l.Addresses, e.Addresses) ||
			l.Conditions.Ready == nil || !*l.Conditions.Ready {
			return false
		}
	}
	return equality.Semantic.DeepEqual(live.Ports, want.Ports) && live.Labels[discoveryv1.LabelManagedBy] == managedBy
}
