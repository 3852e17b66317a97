package servicelb

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/net"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// owners are the objects that may own ports of addresses.
type owners struct {
	nodes    map[netip.Addr][]*corev1.Node
	services []corev1.Service
	gateways map[netip.Addr]string // addresses that Gateways have for themselves, with their names
	balances bool
}

// owners reads the nodes, and the Services if they are asked for.
func (p *plugin) owners(ctx context.Context, services bool) (owners, error) {
	o := owners{nodes: map[netip.Addr][]*corev1.Node{}, balances: p.balances}
	nodes, err := p.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return o, fmt.Errorf("listing nodes: %w", err)
	}
	all := make([]*corev1.Node, len(nodes.Items))
	for i := range nodes.Items {
		all[i] = &nodes.Items[i]
	}
	addresses := undisputed(all)
	for _, n := range all {
		for _, a := range apiAddresses(n, addresses[n.Name]) {
			o.nodes[a] = append(o.nodes[a], n)
		}
	}
	if services {
		all, err := p.client.CoreV1().Services("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return o, fmt.Errorf("listing Services: %w", err)
		}
		o.services = all.Items
	}
	return o, nil
}

// apiAddresses returns the addresses of a Node and, of a server, further ones of its API.
func apiAddresses(n *corev1.Node, addresses []address) (out []netip.Addr) {
	for _, a := range addresses {
		out = append(out, a.Addr)
	}
	if kube.IsServer(n) {
		for text := range strings.SplitSeq(n.Annotations[kube.APINamesAnnotation], ",") {
			if a, ok := parseAddr(text); ok && !slices.Contains(out, a) {
				out = append(out, a)
			}
		}
	}
	return out
}

// service describes the Service other than s that has a claim, "" if there is none.
func (o owners) service(c claim, s *corev1.Service) string {
	for i := range o.services {
		other := &o.services[i]
		if other.Namespace == s.Namespace && other.Name == s.Name {
			continue
		}
		name := "Service " + other.Namespace + "/" + other.Name
		if slices.Contains(portsOf(other), c.port) && (slices.Contains(other.Spec.ClusterIPs, c.addr.String()) || slices.Contains(addressesOf(other), c.addr)) {
			return name
		}
		if len(o.nodes[c.addr]) > 0 && slices.Contains(nodePortsOf(other), c.port) {
			return "the NodePort of " + name
		}
	}
	return ""
}

// processes returns the addresses in the status of s that it cannot keep with the added claims, because a process on the
// node listens there. It returns an error if the user or another load balancer chose such an address. A node speaks for its own addresses, and for
// those of a server only servers do: a node cannot block others.
func (o owners) processes(added []claim, s *corev1.Service) (lost []netip.Addr, err error) {
	for _, c := range added {
		nodes := o.nodes[c.addr]
		if slices.ContainsFunc(nodes, kube.IsServer) {
			nodes = slices.DeleteFunc(slices.Clone(nodes), func(n *corev1.Node) bool { return !kube.IsServer(n) })
		}
		for _, n := range nodes {
			answer, _ := answerOf(n)
			switch by := answer.Held[c.port.String()]; {
			case by == "" || !o.balances:
			case !serves(s) || hasExternal(s, c.addr):
				return nil, fmt.Errorf("port %s of %s is held by %s on node %s: use another port or address", c.port, c.addr, by, n.Name)
			default:
				lost = append(lost, c.addr)
			}
		}
	}
	return lost, nil
}

// mostClaims is how many ports of addresses a Service may have. The lists of both have no limit of their own, and all ports are claimed of all addresses.
const mostClaims = 1000

// claimsOf returns the ports of addresses for which kube-proxy sends packets to a Service, besides those of its cluster IPs; of a Service that has too many,
// from before it was refused, the first.
func claimsOf(s *corev1.Service) (out []claim) {
	ports := portsOf(s)
	for _, addr := range addressesOf(s) {
		for _, p := range ports {
			if len(out) == mostClaims {
				return out
			}
			out = append(out, claim{addr, p})
		}
	}
	return out
}

// countClaims returns how many claims a Service has, however many these are.
func countClaims(s *corev1.Service) int { return len(addressesOf(s)) * len(s.Spec.Ports) }

// addressesOf returns the addresses at which kube-proxy sends packets to a Service, besides its cluster IPs.
func addressesOf(s *corev1.Service) (out []netip.Addr) {
	if s.Spec.Type == corev1.ServiceTypeExternalName || s.Spec.ClusterIP == corev1.ClusterIPNone {
		return nil
	}
	ips := slices.Clone(s.Spec.ExternalIPs)
	for _, i := range s.Status.LoadBalancer.Ingress {
		if i.IPMode == nil || *i.IPMode == corev1.LoadBalancerIPModeVIP {
			ips = append(ips, i.IP)
		}
	}
	for _, ip := range ips {
		if addr, ok := parseAddr(ip); ok {
			out = append(out, addr)
		}
	}
	return out
}

// parseAddr parses an address as kube-proxy does, which takes leading zeros for decimal numbers.
func parseAddr(text string) (netip.Addr, bool) {
	addr, ok := netip.AddrFromSlice(net.ParseIPSloppy(text))
	return addr.Unmap(), ok
}

// without returns the claims in is that are not in was.
func without(is, was []claim) []claim {
	before := map[claim]bool{}
	for _, c := range was {
		before[c] = true
	}
	return slices.DeleteFunc(is, func(c claim) bool { return before[c] })
}

// nodePortsOf are the NodePorts of a Service.
func nodePortsOf(s *corev1.Service) (out []port) {
	for _, p := range s.Spec.Ports {
		if p.NodePort > 0 {
			out = append(out, port{p.NodePort, protocolOf(p.Protocol)})
		}
	}
	return out
}

// datastoreOf returns the addresses of an external etcd.
func datastoreOf(cfg config.Config) (out []claim) {
	for _, endpoint := range cfg.Datastore.Endpoints {
		if u, err := url.Parse(endpoint); err == nil {
			if at, err := netip.ParseAddrPort(u.Host); err == nil {
				out = append(out, claim{at.Addr().Unmap(), port{int32(at.Port()), corev1.ProtocolTCP}})
			}
		}
	}
	return out
}

// is reports whether it is the port.
func (r Reserved) is(p port) bool { return int32(r.Port) == p.number && r.Protocol == p.protocol }
