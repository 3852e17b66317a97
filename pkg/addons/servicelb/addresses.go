package servicelb

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// address is an address of a node.
type address struct {
	netip.Addr
	external bool
}

// family returns the IP family of an address.
func family(a netip.Addr) corev1.IPFamily {
	if a.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

// nodeAddresses returns the external addresses of a Node, then the internal ones, without duplicates.
func nodeAddresses(n *corev1.Node) []address {
	var out []address
	for _, kind := range []corev1.NodeAddressType{corev1.NodeExternalIP, corev1.NodeInternalIP} {
		for _, a := range n.Status.Addresses {
			ip, err := netip.ParseAddr(a.Address)
			if err != nil || a.Type != kind || slices.ContainsFunc(out, func(have address) bool { return have.Addr == ip }) {
				continue
			}
			out = append(out, address{ip, kind == corev1.NodeExternalIP})
		}
	}
	return out
}

// undisputed returns the addresses of nodes by their names, without internal ones that a node only claims while another one is known to have them.
func undisputed(nodes []*corev1.Node) map[string][]address {
	known := map[netip.Addr]bool{}
	for _, n := range nodes {
		for _, a := range nodeAddresses(n) {
			known[a.Addr] = known[a.Addr] || kube.HasForSure(n, a.Addr)
		}
	}
	out := map[string][]address{}
	for _, n := range nodes {
		out[n.Name] = slices.DeleteFunc(nodeAddresses(n), func(a address) bool { return !a.external && known[a.Addr] && !kube.HasForSure(n, a.Addr) })
	}
	return out
}

// published returns the addresses that a Service gets from each of its nodes. In each family these are the external ones if
// any of the nodes has one, else the internal ones. Behind a NAT, packets to the external address arrive with the internal
// address, so kube-proxy has to know both.
func published(s *corev1.Service, nodes []*host) map[string][]address {
	out := map[string][]address{}
	for _, f := range s.Spec.IPFamilies {
		isExternal := func(a address) bool { return a.external && family(a.Addr) == f }
		external := slices.ContainsFunc(nodes, func(n *host) bool { return slices.ContainsFunc(n.addrs, isExternal) })
		for _, n := range nodes {
			behindNAT := slices.ContainsFunc(n.addrs, func(a address) bool { return isExternal(a) && slices.Contains(n.answer.NAT, a.Addr) })
			for _, a := range n.addrs {
				if family(a.Addr) == f && (a.external == external || external && behindNAT) {
					out[n.Name] = append(out[n.Name], a)
				}
			}
		}
	}
	if wanted, err := netip.ParseAddr(s.Spec.LoadBalancerIP); err == nil {
		restrict(out, nodes, wanted)
	}
	return out
}

// restrict keeps the nodes that have the requested address, and of its family only this address and, behind a NAT, the
// address to which its packets are translated.
func restrict(published map[string][]address, nodes []*host, wanted netip.Addr) {
	for _, n := range nodes {
		i := slices.IndexFunc(n.addrs, func(a address) bool { return a.Addr == wanted })
		if i < 0 {
			delete(published, n.Name)
			continue
		}
		hit := n.addrs[i]
		behindNAT := slices.Contains(n.answer.NAT, wanted)
		rest := slices.DeleteFunc(published[n.Name], func(a address) bool {
			return family(a.Addr) == family(wanted) && !(behindNAT && !a.external)
		})
		published[n.Name] = append(rest, hit)
	}
}

// sortAddresses sorts addresses in the order of a Service's families, external ones first.
func sortAddresses(s *corev1.Service, all []address) {
	slices.SortFunc(all, func(a, b address) int {
		return cmp.Or(
			slices.Index(s.Spec.IPFamilies, family(a.Addr))-slices.Index(s.Spec.IPFamilies, family(b.Addr)),
			map[bool]int{true: 0, false: 1}[a.external]-map[bool]int{true: 0, false: 1}[b.external],
			a.Addr.Compare(b.Addr),
		)
	})
}
