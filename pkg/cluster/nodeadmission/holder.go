package nodeadmission

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/kubernetes/pkg/apis/core"
	netutils "k8s.io/utils/net"

	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// holder returns who else has an address, "" if nobody has. The one that is seen at an address, or permitted to have it, takes
// it from a node that only claims it or is not Ready. Nodes behind one NAT share their external address.
func (w *write) holder(ip netip.Addr, kind core.NodeAddressType, seen, permitted bool) string {
	if slices.Contains(w.reserved, ip) {
		return "server " + w.own
	}
	all, err := w.nodes.List(labels.Everything())
	if err != nil {
		return err.Error()
	}
	for _, n := range all {
		if n.Name == w.name {
			continue
		}
		server := kube.IsServer(n)
		if server && slices.Contains(strings.Split(n.Annotations[kube.APINamesAnnotation], ","), ip.String()) {
			return "server " + n.Name
		}
		for _, a := range n.Status.Addresses {
			other, err := netip.ParseAddr(a.Address)
			if err != nil || other.Unmap() != ip {
				continue
			}
			shared := kind == core.NodeExternalIP && a.Type == corev1.NodeExternalIP
			if server || !seen && !permitted || live(n) && !shared && !kube.OnlyClaims(n, ip) {
				return "node " + n.Name
			}
		}
	}
	if seen {
		return ""
	}
	services, err := w.services.List(labels.Everything())
	if err != nil {
		return err.Error()
	}
	for _, s := range services {
		if slices.ContainsFunc(addressesOf(s), func(text string) bool { return netutils.ParseIPSloppy(text).Equal(ip.AsSlice()) }) {
			return "Service " + s.Namespace + "/" + s.Name
		}
	}
	return ""
}

// addressesOf returns the addresses that a Service takes for itself, in any spelling. Those of coracle's load balancers are nodes' own.
func addressesOf(s *corev1.Service) []string {
	all := slices.Clone(s.Spec.ExternalIPs)
	if meta.FindStatusCondition(s.Status.Conditions, kube.LoadBalancerCondition) == nil {
		for _, i := range s.Status.LoadBalancer.Ingress {
			all = append(all, i.IP)
		}
	}
	return all
}

func live(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}
