package networkpolicy

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// packet is the first of a connection.
type packet struct {
	src, dst netip.Addr
	proto    corev1.Protocol // "" is none with ports, ICMP say
	port     int32
}

// world is a cluster as the API has it. It evaluates policies in the plainest way, straight from what the types' docs
// say, for comparison.
type world struct {
	namespaces map[string]labels.Set
	policies   map[types.NamespacedName]*networkingv1.NetworkPolicy
	pods       map[types.UID]*corev1.Pod
	addrs      map[types.UID][]netip.Addr // those of pods of this node as CNI gave them
	node       string
}

func (w *world) at(a netip.Addr) *corev1.Pod {
	for uid, p := range w.pods {
		if p.Spec.NodeName == w.node {
			if slices.Contains(w.addrs[uid], a) {
				return p
			}
			continue
		}
		if slices.ContainsFunc(p.Status.PodIPs, func(ip corev1.PodIP) bool { return netip.MustParseAddr(ip.IP) == a }) {
			return p
		}
	}
	return nil
}

// passes says whether this node lets a packet through.
func (w *world) passes(p packet) bool {
	src, dst := w.at(p.src), w.at(p.dst)
	if src != nil && src == dst && p.src == p.dst {
		return true
	}
	if src != nil && src.Spec.NodeName == w.node && !w.allowed(src, networkingv1.PolicyTypeEgress, dst, p.dst, dst, p) {
		return false
	}
	return dst == nil || dst.Spec.NodeName != w.node || w.allowed(dst, networkingv1.PolicyTypeIngress, src, p.src, dst, p)
}

func (w *world) allowed(subject *corev1.Pod, kind networkingv1.PolicyType, other *corev1.Pod, addr netip.Addr, to *corev1.Pod, p packet) bool {
	isolated := false
	for _, pol := range w.policies {
		if pol.Namespace != subject.Namespace || !matches(&pol.Spec.PodSelector, subject.Labels) || !slices.Contains(pol.Spec.PolicyTypes, kind) {
			continue
		}
		isolated = true
		if kind == networkingv1.PolicyTypeIngress {
			for _, r := range pol.Spec.Ingress {
				if w.peers(pol.Namespace, r.From, other, addr) && ports(r.Ports, to, p) {
					return true
				}
			}
			continue
		}
		for _, r := range pol.Spec.Egress {
			if w.peers(pol.Namespace, r.To, other, addr) && ports(r.Ports, to, p) {
				return true
			}
		}
	}
	return !isolated
}

func matches(s *metav1.LabelSelector, l map[string]string) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(labels.Set(l))
}

func (w *world) peers(namespace string, peers []networkingv1.NetworkPolicyPeer, other *corev1.Pod, addr netip.Addr) bool {
	if len(peers) == 0 {
		return true
	}
	for _, peer := range peers {
		if peer.IPBlock != nil {
			in := func(cidr string) bool { return netip.MustParsePrefix(cidr).Contains(addr) }
			if in(peer.IPBlock.CIDR) && !slices.ContainsFunc(peer.IPBlock.Except, in) {
				return true
			}
			continue
		}
		if other == nil || peer.PodSelector != nil && !matches(peer.PodSelector, other.Labels) {
			continue
		}
		if peer.NamespaceSelector == nil && other.Namespace == namespace {
			return true
		}
		if peer.NamespaceSelector != nil {
			if l, ok := w.namespaces[other.Namespace]; ok && matches(peer.NamespaceSelector, l) {
				return true
			}
		}
	}
	return false
}

func ports(ports []networkingv1.NetworkPolicyPort, to *corev1.Pod, p packet) bool {
	if len(ports) == 0 {
		return true
	}
	for _, port := range ports {
		if port.Protocol == nil && p.proto != corev1.ProtocolTCP || port.Protocol != nil && *port.Protocol != p.proto {
			continue
		}
		switch {
		case port.Port == nil:
			return true
		case port.Port.Type == intstr.Int && port.EndPort == nil && port.Port.IntVal == p.port:
			return true
		case port.Port.Type == intstr.Int && port.EndPort != nil && port.Port.IntVal <= p.port && p.port <= *port.EndPort:
			return true
		case port.Port.Type == intstr.String && to != nil:
			for _, c := range to.Spec.Containers {
				for _, cp := range c.Ports {
					if cp.Name == port.Port.StrVal && cp.Protocol == p.proto && cp.ContainerPort == p.port {
						return true
					}
				}
			}
		}
	}
	return false
}

// passes is what the kernel would do with a packet, by the table.
func (t *table) passes(p packet) bool {
	for _, d := range []direction{egress, ingress} {
		addr := p.src
		if d == ingress {
			addr = p.dst
		}
		verdict, isolated := t.sets[verdictMap(d, familyOf(addr))].elems[elem{a: addr}]
		if isolated && !t.chainAllows(verdict, p) {
			return false
		}
	}
	return true
}

func (t *table) chainAllows(verdict string, p packet) bool {
	f := familyOf(p.src)
	if _, self := t.sets[familySet(selfSet, f)].elems[elem{a: p.src, b: p.dst}]; self {
		return true
	}
	c := t.chains[verdict[len("jump "):]]
	return c != nil && slices.ContainsFunc(c.rules, func(r rule) bool { return t.matches(r, p) })
}

func (t *table) matches(r rule, p packet) bool {
	f := familyOf(p.src)
	if r.family != 0 && r.family != f {
		return false
	}
	peer := p.src
	if r.direction == egress {
		peer = p.dst
	}
	if r.group != nil {
		if _, in := t.sets[groupSet(r.group.key, f)].elems[elem{a: peer}]; !in {
			return false
		}
	}
	if r.block != nil && !slices.ContainsFunc(r.block, func(r addressRange) bool { return r.Contains(peer) }) {
		return false
	}
	proto := ""
	if p.proto != "" {
		proto = protocolOf(p.proto)
	}
	if r.proto != "" && r.proto != proto {
		return false
	}
	if r.named != "" {
		_, in := t.sets[namedSet(portName{r.named, r.proto}, f)].elems[elem{a: p.dst, proto: proto, port: uint16(p.port)}]
		return in
	}
	return r.ports == nil || slices.ContainsFunc(r.ports, func(s portRange) bool { return s.from <= uint16(p.port) && uint16(p.port) <= s.to })
}
