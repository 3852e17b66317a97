package servicelb

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-dev/coracle/pkg/core/kube"
)

var reserved = []Reserved{
	{Port: 6443, Protocol: corev1.ProtocolTCP, Holder: "coracle (API server)", ServersOnly: true},
	{Port: 10250, Protocol: corev1.ProtocolTCP, Holder: "coracle (kubelet)"},
	{Port: 8472, Protocol: corev1.ProtocolUDP, Holder: "coracle (vxlan)"},
}

// change makes an object differ from the ordinary one.
type change[T any] func(T)

// lb is a Service that is n seconds old; a port is "80" or "80/UDP".
func lb(name string, n int, ports string, changes ...change[*corev1.Service]) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{}, Annotations: map[string]string{},
			CreationTimestamp: metav1.Unix(1000+int64(n), 0),
		},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}},
	}
	for _, p := range parsePorts(withProtocol(ports)) {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Port: p.number, Protocol: p.protocol})
	}
	for _, c := range changes {
		c(s)
	}
	return s
}

func withProtocol(ports string) string {
	var out []string
	for one := range strings.SplitSeq(ports, ",") {
		if !strings.Contains(one, "/") {
			one += "/TCP"
		}
		out = append(out, one)
	}
	return strings.Join(out, ",")
}

// has is a Service whose status lists addresses, with all its ports.
func has(ips ...string) change[*corev1.Service] {
	return func(s *corev1.Service) {
		for _, ip := range ips {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, entryFor(s, address{Addr: netip.MustParseAddr(ip)}))
		}
	}
}

// hasOnly is a Service whose status lists an address with some ports.
func hasOnly(ip, ports string) change[*corev1.Service] {
	return func(s *corev1.Service) {
		has(ip)(s)
		s.Status.LoadBalancer.Ingress[0].Ports = lb("", 0, ports, has(ip)).Status.LoadBalancer.Ingress[0].Ports
	}
}

func label(k, v string) change[*corev1.Service] {
	return func(s *corev1.Service) { s.Labels[k] = v }
}

func families(f ...corev1.IPFamily) change[*corev1.Service] {
	return func(s *corev1.Service) { s.Spec.IPFamilies = f }
}

func local(s *corev1.Service) {
	s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
}

// member is a Ready node that has said that every port of these tests is free.
func member(name, internal string, changes ...change[*corev1.Node]) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}, Annotations: map[string]string{}}}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: internal}, {Type: corev1.NodeHostName, Address: name}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	says("80/TCP,443/TCP,53/TCP,53/UDP,22/TCP,6443/TCP,10250/TCP,8472/UDP,30080/TCP", "")(n)
	for _, c := range changes {
		c(n)
	}
	return n
}

// says is a node with an answer; held is the rest of its JSON.
func says(asked, held string) change[*corev1.Node] {
	return func(n *corev1.Node) { n.Annotations[heldAnnotation] = fmt.Sprintf(`{"asked":%q%s}`, asked, held) }
}

// manyPorts is a list of ports from one on.
func manyPorts(first, n int) string {
	var all []string
	for p := range n {
		all = append(all, strconv.Itoa(first+p))
	}
	return strings.Join(all, ",")
}

// withdrawn is a Service that the admission plugin took addresses from.
func withdrawn(at time.Time, ports string) change[*corev1.Service] {
	return func(s *corev1.Service) {
		s.Status.Conditions = []metav1.Condition{{Type: readyCondition, Reason: changing, Message: toCome + ports, LastTransitionTime: metav1.NewTime(at)}}
	}
}

func silent(n *corev1.Node) { delete(n.Annotations, heldAnnotation) }

func external(ip string) change[*corev1.Node] {
	return func(n *corev1.Node) {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: ip})
	}
}

func internal(ip string) change[*corev1.Node] {
	return func(n *corev1.Node) {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip})
	}
}

func labelled(k, v string) change[*corev1.Node] {
	return func(n *corev1.Node) { n.Labels[k] = v }
}

func tainted(key string) change[*corev1.Node] {
	return func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Value: "x", Effect: corev1.TaintEffectNoSchedule})
	}
}

func notReady(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }

// told spells an outcome: the addresses, then why there are not more.
func told(o outcome) string {
	var parts []string
	switch {
	case o.release:
		return "release"
	case o.hold:
		parts = append(parts, "hold:")
	}
	for _, i := range o.ingress {
		parts = append(parts, i.IP)
	}
	if o.ready.Status != metav1.ConditionTrue {
		parts = append(parts, o.ready.Reason)
	}
	if o.refused != nil {
		parts = append(parts, "("+o.refused.Message+")")
	}
	return strings.Join(parts, " ")
}

func TestPlan(t *testing.T) {
	a, b := member("a", "10.0.0.1"), member("b", "10.0.0.2")
	two := []*corev1.Node{a, b}
	web := lb("web", 0, "80")
	both := "10.0.0.1 10.0.0.2"
	now := time.Unix(5000, 0)
	for _, test := range []struct {
		title    string
		services []*corev1.Service
		nodes    []*corev1.Node
		in       snapshot // the rest
		want     []string // by Service, oldest first
	}{
		{title: "all nodes", services: []*corev1.Service{web}, nodes: two, want: []string{both}},
		{title: "no node", services: []*corev1.Service{web}, want: []string{"NoNodes"}},
		{title: "chosen by k3s's label", services: []*corev1.Service{web}, nodes: []*corev1.Node{member("a", "10.0.0.1", labelled(k3sEnable, "true")), b}, want: []string{"10.0.0.1"}},
		{title: "chosen by ours", services: []*corev1.Service{web}, nodes: []*corev1.Node{member("a", "10.0.0.1", labelled(ownEnable, "true")), b}, want: []string{"10.0.0.1"}},
		{title: "any value begins the choice", services: []*corev1.Service{web}, nodes: []*corev1.Node{member("a", "10.0.0.1", labelled(k3sEnable, "false")), b}, want: []string{"NoNodes"}},
		{title: "k3s's pool", services: []*corev1.Service{lb("web", 0, "80", label(k3sPool, "x"))},
			nodes: []*corev1.Node{member("a", "10.0.0.1", labelled(k3sEnable, "true"), labelled(k3sPool, "x")), member("b", "10.0.0.2", labelled(k3sEnable, "true"))}, want: []string{"10.0.0.1"}},
		{title: "k3s's pool without the choice", services: []*corev1.Service{lb("web", 0, "80", label(k3sPool, "x"))}, nodes: two, want: []string{both}},
		{title: "our pool", services: []*corev1.Service{lb("web", 0, "80", label(ownPool, "x"))}, nodes: []*corev1.Node{member("a", "10.0.0.1", labelled(ownPool, "x")), b}, want: []string{"10.0.0.1"}},
		{title: "excluded", services: []*corev1.Service{web}, nodes: []*corev1.Node{member("a", "10.0.0.1", labelled(corev1.LabelNodeExcludeBalancers, "")), b}, want: []string{"10.0.0.2"}},
		{title: "not excluded", services: []*corev1.Service{web}, nodes: []*corev1.Node{member("a", "10.0.0.1", labelled(corev1.LabelNodeExcludeBalancers, "false")), b}, want: []string{both}},
		{title: "tainted", services: []*corev1.Service{web}, nodes: []*corev1.Node{member("a", "10.0.0.1", tainted("gpu")), member("b", "10.0.0.2", tainted(controlPlane), tainted("node.kubernetes.io/unschedulable"))}, want: []string{"10.0.0.2"}},
		{title: "tainted and tolerated", services: []*corev1.Service{lb("web", 0, "80", func(s *corev1.Service) {
			s.Annotations[k3sTolerations] = "- key: gpu\n  operator: Exists\n"
		})}, nodes: []*corev1.Node{member("a", "10.0.0.1", tainted("gpu")), b}, want: []string{both}},
		{title: "about to be deleted", services: []*corev1.Service{web}, nodes: []*corev1.Node{member("a", "10.0.0.1", tainted(toBeDeleted)), b}, want: []string{"10.0.0.2"}},
		{title: "not Ready", services: []*corev1.Service{web}, nodes: []*corev1.Node{member("a", "10.0.0.1", notReady), b}, want: []string{"10.0.0.2"}},
		{title: "lost", services: []*corev1.Service{web}, nodes: two, in: snapshot{lost: map[string]bool{"a": true}}, want: []string{"10.0.0.2"}},
		{title: "all lost", services: []*corev1.Service{web}, nodes: two, in: snapshot{lost: map[string]bool{"a": true, "b": true}}, want: []string{both}},
		{title: "another class", services: []*corev1.Service{lb("web", 0, "80", func(s *corev1.Service) { c := "metal"; s.Spec.LoadBalancerClass = &c })}, nodes: two},
		{title: "our class", services: []*corev1.Service{lb("web", 0, "80", func(s *corev1.Service) { c := Class; s.Spec.LoadBalancerClass = &c })}, nodes: two, want: []string{both}},
		{title: "another balancer's", services: []*corev1.Service{lb("web", 0, "80", has("192.0.2.9"))}, nodes: two},
		{title: "k3s's, taken over", services: []*corev1.Service{lb("web", 0, "80", has("10.0.0.2"))}, nodes: two, want: []string{both}},
		{title: "being deleted", services: []*corev1.Service{lb("web", 0, "80", has("10.0.0.1"), func(s *corev1.Service) { s.DeletionTimestamp = &metav1.Time{} }), lb("next", 1, "80")},
			nodes: two[:1], want: []string{"release", "hold: Waiting"}},

		{title: "external addresses", services: []*corev1.Service{web}, nodes: []*corev1.Node{member("a", "10.0.0.1", external("192.0.2.1")), b}, want: []string{"192.0.2.1"}},
		{title: "behind a NAT", services: []*corev1.Service{web}, nodes: []*corev1.Node{member("a", "10.0.0.1", external("192.0.2.1"), says("80/TCP", `,"nat":["192.0.2.1"]`)), b}, want: []string{"192.0.2.1 10.0.0.1"}},
		{title: "two families", services: []*corev1.Service{lb("web", 0, "80", families(corev1.IPv6Protocol, corev1.IPv4Protocol))},
			nodes: []*corev1.Node{member("a", "10.0.0.1", internal("fd00::1")), member("b", "10.0.0.2", internal("fd00::2"))}, want: []string{"fd00::1 fd00::2 " + both}},
		{title: "IPv6 only", services: []*corev1.Service{lb("web", 0, "80", families(corev1.IPv6Protocol))}, nodes: []*corev1.Node{member("a", "10.0.0.1", internal("fd00::1")), b}, want: []string{"fd00::1"}},
		{title: "external in one family", services: []*corev1.Service{lb("web", 0, "80", families(corev1.IPv4Protocol, corev1.IPv6Protocol))},
			nodes: []*corev1.Node{member("a", "10.0.0.1", internal("fd00::1"), external("192.0.2.1"))}, want: []string{"192.0.2.1 fd00::1"}},
		{title: "no address of the family", services: []*corev1.Service{lb("web", 0, "80", families(corev1.IPv6Protocol))}, nodes: two, want: []string{"NoNodes"}},
		{title: "one address wanted", services: []*corev1.Service{lb("web", 0, "80", func(s *corev1.Service) { s.Spec.LoadBalancerIP = "10.0.0.2" })}, nodes: two, want: []string{"10.0.0.2"}},
		{title: "an address of nobody wanted", services: []*corev1.Service{lb("web", 0, "80", func(s *corev1.Service) { s.Spec.LoadBalancerIP = "10.0.0.9" })}, nodes: two, want: []string{"NoNodes"}},

		{title: "Local", services: []*corev1.Service{lb("web", 0, "80", local)}, nodes: two,
			in: snapshot{endpoints: map[types.NamespacedName]places{{Namespace: "default", Name: "web"}: {ready: map[string]bool{"b": true}}}}, want: []string{"10.0.0.2"}},
		{title: "Local, and the last one is ending", services: []*corev1.Service{lb("web", 0, "80", local)}, nodes: two,
			in: snapshot{endpoints: map[types.NamespacedName]places{{Namespace: "default", Name: "web"}: {terminating: map[string]bool{"b": true}}}}, want: []string{"10.0.0.2"}},
		{title: "Local without endpoints", services: []*corev1.Service{lb("web", 0, "80", local, has("10.0.0.2"))}, nodes: two, want: []string{both}},
		{title: "Local with endpoints on others", services: []*corev1.Service{lb("web", 0, "80", local, has("10.0.0.2"))}, nodes: two,
			in: snapshot{endpoints: map[types.NamespacedName]places{{Namespace: "default", Name: "web"}: {ready: map[string]bool{"c": true}}}}, want: []string{"NoEndpoints"}},

		{title: "a port twice", services: []*corev1.Service{web, lb("other", 1, "443,80")}, nodes: two[:1], want: []string{"10.0.0.1", "PortTaken (port 80/TCP is held by Service default/web on node a)"}},
		{title: "the younger one has it", services: []*corev1.Service{web, lb("other", 1, "80", has("10.0.0.1"))}, nodes: two,
			want: []string{"10.0.0.2 (port 80/TCP is held by Service default/other on node a)", "10.0.0.1 (port 80/TCP is held by Service default/web on node b)"}},
		{title: "both have it", services: []*corev1.Service{lb("web", 0, "80", has("10.0.0.1")), lb("other", 1, "80", has("10.0.0.1"))}, nodes: two[:1],
			want: []string{"10.0.0.1", "PortTaken (port 80/TCP is held by Service default/web on node a)"}},
		{title: "it is still said to be another's", services: []*corev1.Service{lb("web", 0, "80", has("10.0.0.1"), label(ownPool, "x")), lb("other", 1, "80")}, nodes: two[:1], want: []string{"NoNodes", "hold: Waiting"}},
		{title: "another port is still said to be another's", services: []*corev1.Service{lb("web", 0, "80,443", hasOnly("10.0.0.1", "80"), label(ownPool, "x")), lb("other", 1, "443")}, nodes: two[:1],
			want: []string{"NoNodes", "10.0.0.1"}},
		{title: "a Service that is refused takes no port", services: []*corev1.Service{lb("ssh", 0, "22,443"), lb("other", 1, "443")},
			nodes: []*corev1.Node{member("a", "10.0.0.1", says("22/TCP,443/TCP", `,"held":{"22/TCP":"sshd (pid 7)"}`))}, want: []string{"PortTaken (port 22/TCP is held by sshd (pid 7) on node a)", "10.0.0.1"}},
		{title: "two swap", services: []*corev1.Service{lb("web", 0, "443", hasOnly("10.0.0.1", "80")), lb("other", 1, "80", hasOnly("10.0.0.1", "443"))}, nodes: two[:1], want: []string{"10.0.0.1", "10.0.0.1"}},
		{title: "a port of two protocols", services: []*corev1.Service{lb("tcp", 0, "53"), lb("udp", 1, "53/UDP")}, nodes: two[:1], want: []string{"10.0.0.1", "10.0.0.1"}},
		{title: "a port of two families", services: []*corev1.Service{web, lb("six", 1, "80", families(corev1.IPv6Protocol))}, nodes: []*corev1.Node{member("a", "10.0.0.1", internal("fd00::1"))}, want: []string{"10.0.0.1", "fd00::1"}},
		{title: "coracle's own", services: []*corev1.Service{lb("api", 0, "6443"), lb("kubelet", 1, "10250"), lb("vxlan", 2, "8472/UDP")}, nodes: []*corev1.Node{member("a", "10.0.0.1", labelled(controlPlane, "true")), b},
			want: []string{"10.0.0.2 (port 6443/TCP is held by coracle (API server) on node a)", "PortTaken (port 10250/TCP is held by coracle (kubelet) on nodes a, b)", "PortTaken (port 8472/UDP is held by coracle (vxlan) on nodes a, b)"}},
		{title: "the node uses it", services: []*corev1.Service{lb("ssh", 0, "22")}, nodes: []*corev1.Node{member("a", "10.0.0.1", says("22/TCP", `,"held":{"22/TCP":"sshd (pid 7)"}`)), b},
			want: []string{"10.0.0.2 (port 22/TCP is held by sshd (pid 7) on node a)"}},
		{title: "the node began to use it", services: []*corev1.Service{lb("ssh", 0, "22", has("10.0.0.1"))}, nodes: []*corev1.Node{member("a", "10.0.0.1", says("22/TCP", `,"held":{"22/TCP":"sshd (pid 7)"}`))}, want: []string{"10.0.0.1"}},
		{title: "it was given before the node could say", services: []*corev1.Service{lb("ssh", 0, "22", has("10.0.0.1"))}, nodes: []*corev1.Node{member("a", "10.0.0.1", says("22/TCP", `,"held":{"22/TCP":"sshd (pid 7)"}`))},
			in: snapshot{since: map[portQuery]time.Time{{"a", port{22, corev1.ProtocolTCP}}: now}}, want: []string{"PortTaken (port 22/TCP is held by sshd (pid 7) on node a)"}},
		{title: "a port added", services: []*corev1.Service{lb("ssh", 0, "80,22", hasOnly("10.0.0.1", "80"))}, nodes: []*corev1.Node{member("a", "10.0.0.1", says("22/TCP", `,"held":{"22/TCP":"sshd (pid 7)"}`))},
			want: []string{"PortTaken (port 22/TCP is held by sshd (pid 7) on node a)"}},
		{title: "a port added, and not yet known", services: []*corev1.Service{lb("web", 0, "80,443", hasOnly("10.0.0.1", "80"))}, nodes: []*corev1.Node{member("a", "10.0.0.1", says("80/TCP", ""))}, want: []string{"hold: 10.0.0.1"}},
		{title: "a NodePort", services: []*corev1.Service{lb("web", 0, "30080")}, nodes: two, in: snapshot{nodePorts: map[port]nodePort{{30080, corev1.ProtocolTCP}: {"other", "the NodePort of Service x/y"}}},
			want: []string{"PortTaken (port 30080/TCP is held by the NodePort of Service x/y on nodes a, b)"}},

		{title: "an external address", services: []*corev1.Service{lb("web", 0, "80")}, nodes: two, in: snapshot{external: map[claim]nodePort{{netip.MustParseAddr("10.0.0.1"), port{80, corev1.ProtocolTCP}}: {"other", "Service x/y (externalIPs)"}}},
			want: []string{"10.0.0.2 (port 80/TCP is held by Service x/y (externalIPs) on node a)"}},
		{title: "its own NodePort", services: []*corev1.Service{lb("web", 0, "30080")}, nodes: two, in: snapshot{nodePorts: map[port]nodePort{{30080, corev1.ProtocolTCP}: {"uid-web", "the NodePort of Service default/web"}}}, want: []string{both}},

		{title: "addresses withdrawn for a change", services: []*corev1.Service{lb("web", 0, "80", has("10.0.0.1"), withdrawn(now, "22/TCP"))}, nodes: two, want: []string{"hold: " + both}},
		{title: "addresses withdrawn for a change that came", services: []*corev1.Service{lb("web", 0, "80", has("10.0.0.1"), withdrawn(now, "80/TCP"))}, nodes: two, want: []string{both}},
		{title: "addresses withdrawn for a change that does not come", services: []*corev1.Service{lb("web", 0, "80", has("10.0.0.1"), withdrawn(now.Add(-time.Minute), "22/TCP"))}, nodes: two, want: []string{both}},
		{title: "no answer yet", services: []*corev1.Service{web}, nodes: []*corev1.Node{member("a", "10.0.0.1", silent), b}, want: []string{"hold: 10.0.0.2"}},
		{title: "no answer yet, but a node to take back", services: []*corev1.Service{lb("web", 0, "80", has("10.0.0.3"))}, nodes: []*corev1.Node{member("a", "10.0.0.1", silent), b, member("c", "10.0.0.3", notReady)}, want: []string{"10.0.0.2"}},
		{title: "no answer in time", services: []*corev1.Service{web}, nodes: []*corev1.Node{member("a", "10.0.0.1", silent)},
			in: snapshot{since: map[portQuery]time.Time{{"a", port{80, corev1.ProtocolTCP}}: now.Add(-answerTimeout)}}, want: []string{"10.0.0.1"}},
		{title: "no answer in time, but one that was not asked for", services: []*corev1.Service{lb("ssh", 0, "22")}, nodes: []*corev1.Node{member("a", "10.0.0.1", says("", `,"held":{"22/TCP":"sshd (pid 7)"}`))},
			in: snapshot{since: map[portQuery]time.Time{{"a", port{22, corev1.ProtocolTCP}}: now.Add(-answerTimeout)}}, want: []string{"PortTaken (port 22/TCP is held by sshd (pid 7) on node a)"}},
		{title: "more ports than a node can be asked for", services: []*corev1.Service{lb("web", 0, "80"), lb("all", 1, manyPorts(1000, mostAsked)), lb("same", 2, "80")}, nodes: []*corev1.Node{member("a", "10.0.0.1", says("80/TCP", ""))},
			want: []string{"10.0.0.1", "PortTaken (port 1000/TCP is held by other load balancers, which have 5000 ports of the node together: more are not asked for on node a)", "PortTaken (port 80/TCP is held by Service default/web on node a)"}},
		{title: "nonsense for an answer", services: []*corev1.Service{web}, nodes: []*corev1.Node{member("a", "10.0.0.1", func(n *corev1.Node) { n.Annotations[heldAnnotation] = "{" })}, want: []string{"hold: Waiting"}},
	} {
		t.Run(test.title, func(t *testing.T) {
			in := test.in
			in.services, in.nodes, in.now = test.services, test.nodes, now
			var got []string
			for _, o := range in.plan(reserved).outcomes {
				got = append(got, told(o))
			}
			if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", test.want) {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

// TestUndisputed: an address that one node has for sure is not another one's who claims it, except an external one that they share.
func TestUndisputed(t *testing.T) {
	node := func(name, seen string, addresses ...corev1.NodeAddress) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{kube.SeenAddresses: seen}}, Status: corev1.NodeStatus{Addresses: addresses}}
	}
	internal := func(ip string) corev1.NodeAddress {
		return corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip}
	}
	shared := corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "203.0.113.1"}
	got := fmt.Sprint(undisputed([]*corev1.Node{
		node("claims", "", internal("192.0.2.1"), internal("192.0.2.9"), shared),
		node("seen", "192.0.2.1,203.0.113.1", internal("192.0.2.1"), shared),
		node("claims-too", "", internal("192.0.2.9")),
	}))
	if want := "map[claims:[203.0.113.1 192.0.2.9] claims-too:[192.0.2.9] seen:[203.0.113.1 192.0.2.1]]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
