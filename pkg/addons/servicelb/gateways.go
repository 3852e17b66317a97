package servicelb

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-dev/coracle/pkg/core/addon"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// gatewayKind marks the Services that stand for Gateways in a plan. Services of the API have no kind when they are read.
const gatewayKind = "Gateway"

func isGateway(s *corev1.Service) bool { return s.Kind == gatewayKind }

// kindOf names the kind of a Service of a plan in messages.
func kindOf(s *corev1.Service) string {
	if isGateway(s) {
		return gatewayKind
	}
	return "Service"
}

// standIn returns a Service that gets the addresses of pools that a Gateway gets. before is what this server decided last, which may not be in
// the Gateway's status yet.
func standIn(g addon.Gateway, before addon.Decision, pools []pool) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{
		Namespace: g.Namespace, Name: g.Name, UID: g.UID, CreationTimestamp: metav1.NewTime(g.Created), Labels: g.Labels, Annotations: map[string]string{},
	}}
	s.Kind = gatewayKind
	s.Spec.Type = corev1.ServiceTypeLoadBalancer
	for _, key := range slices.Concat(wantedAddresses[:], wantedPool[:], sharingKey[:]) {
		if text, ok := g.Annotations[key]; ok {
			s.Annotations[key] = text
		}
	}
	if asked := slices.DeleteFunc(slices.Clone(g.Asked), func(a string) bool { return a == "" }); len(asked) > 0 {
		s.Annotations[wantedAddresses[0]] = strings.Join(asked, ",")
	}
	for _, p := range parsePorts(strings.Join(g.Ports, ",")) {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Port: p.number, Protocol: p.protocol})
	}
	s.Spec.IPFamilies = familiesFor(s, pools)
	has := slices.Clone(g.Has)
	for _, a := range before.Addresses {
		if !slices.Contains(has, a) {
			has = append(has, a)
		}
	}
	for _, a := range has {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, entryFor(s, address{Addr: a}))
	}
	s.Status.Conditions = []metav1.Condition{{Type: readyCondition}} // the addresses are ours
	return s
}

// familiesFor returns the families in which a Gateway gets an address: those that it asks for, or all of which a pool that it can use has
// addresses. Its backends may have another family.
func familiesFor(s *corev1.Service, pools []pool) (out []corev1.IPFamily) {
	asked, _ := requested(s)
	for _, a := range asked {
		out = append(out, family(a))
	}
	for i := range pools {
		name := annotation(s, wantedPool)
		if len(asked) > 0 || name != pools[i].Name && (name != "" || pools[i].Manual) || !pools[i].admits(s) {
			continue
		}
		for _, r := range pools[i].Ranges {
			out = append(out, family(r.First))
		}
	}
	if len(out) == 0 { // for the message that there is none
		return []corev1.IPFamily{corev1.IPv4Protocol}
	}
	slices.Sort(out) // IPv4 first
	return slices.Compact(out)
}

// asksForNodes reports whether all addresses that a Gateway asks for are addresses of nodes, which it then does not get of a pool.
func asksForNodes(s *corev1.Service, nodes map[netip.Addr]string) bool {
	asked, problem := requested(s)
	return problem == "" && len(asked) > 0 && !slices.ContainsFunc(asked, func(a netip.Addr) bool { return nodes[a] == "" })
}

// withGateways returns Services with stand-ins for the Gateways.
func (c *controller) withGateways(services []*corev1.Service, gateways []addon.Gateway, pools []pool) []*corev1.Service {
	services = slices.Clip(services)
	for _, g := range gateways {
		services = append(services, standIn(g, c.decided[g.UID], pools))
	}
	return services
}

// decide tells what the Gateways get, and takes their outcomes out of those that are written to Services.
func (c *controller) decide(outcomes []outcome) (rest []outcome) {
	before := c.decided
	c.decided = map[types.UID]addon.Decision{}
	for _, o := range outcomes {
		if !isGateway(o.service) {
			rest = append(rest, o)
			continue
		}
		d := addon.Decision{Own: o.pooled}
		if o.pooled {
			asked, problem := requested(o.service)
			d.Asked, d.Problem = len(asked) > 0 || problem != "", o.problem
			for _, i := range o.ingress {
				a := netip.MustParseAddr(i.IP)
				if d.Addresses = append(d.Addresses, a); !slices.Contains(before[o.service.UID].Addresses, a) {
					c.unsettled, c.settled = true, time.Now().Add(settleTime)
				}
			}
		}
		c.decided[o.service.UID] = d
	}
	c.Gateways.Decide(c.decided)
	return rest
}

// gatewayNodes are the nodes that may announce addresses of Gateways: servers that are Ready, as only they have a gateway.
func (in snapshot) gatewayNodes() (names []string) {
	for _, n := range in.nodes {
		if kube.IsServer(n) && n.DeletionTimestamp == nil && !isExcluded(n) && kube.NodeReadiness(n) == corev1.ConditionTrue {
			names = append(names, n.Name)
		}
	}
	slices.Sort(names)
	return names
}

// gateways returns the Gateways that may get addresses of pools.
func (c *controller) gateways() []addon.Gateway {
	if c.Pools.none() {
		return nil
	}
	all, _ := c.Gateways.Gateways()
	return all
}
