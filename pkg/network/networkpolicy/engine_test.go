package networkpolicy

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/knftables"
)

// history makes random events in a cluster, and tells the engine of each what the API and CNI would.
type history struct {
	*rand.Rand
	world
	engine *engine
	next   int
	free   []int // numbers of addresses that can be had again
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func (h *history) maybe() bool { return h.IntN(2) == 0 }

func (h *history) labels() map[string]string {
	out := map[string]string{}
	for _, key := range []string{"app", "tier"} {
		if h.maybe() {
			out[key] = pick(h.Rand, "a", "b", "c")
		}
	}
	return out
}

func (h *history) selector() *metav1.LabelSelector {
	switch h.IntN(4) {
	case 0:
		return &metav1.LabelSelector{}
	case 1:
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier",
			Operator: pick(h.Rand, metav1.LabelSelectorOpDoesNotExist, metav1.LabelSelectorOpExists)}}}
	case 2:
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app",
			Operator: pick(h.Rand, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn), Values: []string{"a", pick(h.Rand, "b", "c")}}}}
	}
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": pick(h.Rand, "a", "b", "c")}}
}

func (h *history) peers() (out []networkingv1.NetworkPolicyPeer) {
	for range h.IntN(4) {
		switch h.IntN(5) {
		case 0:
			out = append(out, networkingv1.NetworkPolicyPeer{PodSelector: h.selector()})
		case 1:
			out = append(out, networkingv1.NetworkPolicyPeer{NamespaceSelector: h.selector()})
		case 2:
			out = append(out, networkingv1.NetworkPolicyPeer{NamespaceSelector: h.selector(), PodSelector: h.selector()})
		case 3:
			out = append(out, networkingv1.NetworkPolicyPeer{IPBlock: pick(h.Rand,
				&networkingv1.IPBlock{CIDR: "0.0.0.0/0", Except: []string{"10.42.0.0/29", "203.0.113.0/25"}},
				&networkingv1.IPBlock{CIDR: "203.0.113.0/24"}, &networkingv1.IPBlock{CIDR: "10.42.0.4/31"},
				&networkingv1.IPBlock{CIDR: "0.0.0.0/0"})})
		case 4:
			out = append(out, networkingv1.NetworkPolicyPeer{IPBlock: pick(h.Rand,
				&networkingv1.IPBlock{CIDR: "::/0"}, &networkingv1.IPBlock{CIDR: "fd42::/16", Except: []string{"fd42::8/125"}},
				&networkingv1.IPBlock{CIDR: "2001:db8::/32"})})
		}
	}
	return out
}

func (h *history) ports() (out []networkingv1.NetworkPolicyPort) {
	protos := []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}
	for range h.IntN(3) {
		p := networkingv1.NetworkPolicyPort{Protocol: new(pick(h.Rand, protos...))}
		switch h.IntN(5) {
		case 0: // the protocol alone
		case 1:
			p.Port = new(intstr.FromString(pick(h.Rand, "web", "admin", "nobodys")))
		case 2:
			p.Port, p.EndPort = new(intstr.FromInt32(80)), new(int32(82))
		default:
			p.Port = new(intstr.FromInt32(pick(h.Rand, int32(80), 81, 83, 8080)))
		}
		if *p.Protocol == corev1.ProtocolTCP && h.maybe() {
			p.Protocol = nil
		}
		out = append(out, p)
	}
	return out
}

func (h *history) setPolicy(t *testing.T) {
	p := &networkingv1.NetworkPolicy{}
	p.Namespace, p.Name = pick(h.Rand, "x", "y", "z"), pick(h.Rand, "p", "q", "r")
	p.Spec.PodSelector = *h.selector()
	p.Spec.PolicyTypes = pick(h.Rand, []networkingv1.PolicyType{"Ingress"}, []networkingv1.PolicyType{"Egress"}, []networkingv1.PolicyType{"Ingress", "Egress"})
	for range h.IntN(3) {
		p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: h.peers(), Ports: h.ports()})
		p.Spec.Egress = append(p.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: h.peers(), Ports: h.ports()})
	}
	h.policies[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}] = p
	if err := h.engine.setPolicy(p); err != nil {
		t.Fatal(err)
	}
}

func (h *history) removePolicy(*testing.T) {
	name := types.NamespacedName{Namespace: pick(h.Rand, "x", "y", "z"), Name: pick(h.Rand, "p", "q", "r")}
	delete(h.policies, name)
	h.engine.removePolicy(name.Namespace, name.Name)
}

func (h *history) setNamespace(*testing.T) {
	name := pick(h.Rand, "x", "y", "z")
	h.namespaces[name] = h.labels()
	h.engine.setNamespace(name, h.namespaces[name])
}

func (h *history) removeNamespace(*testing.T) {
	if h.IntN(5) > 0 {
		return
	}
	name := pick(h.Rand, "x", "y", "z")
	delete(h.namespaces, name)
	h.engine.removeNamespace(name)
}

// addPod starts a pod, here or elsewhere: it is first known, or has its addresses first.
func (h *history) addPod(*testing.T) {
	if len(h.pods) > 12 {
		return
	}
	h.next++
	p := &corev1.Pod{}
	p.UID, p.Name, p.Namespace, p.Labels = types.UID(fmt.Sprint("uid-", h.next)), fmt.Sprint("pod-", h.next), pick(h.Rand, "x", "y", "z"), h.labels()
	p.Spec.NodeName = pick(h.Rand, "here", "there")
	p.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{
		{Name: "web", Protocol: corev1.ProtocolTCP, ContainerPort: pick(h.Rand, int32(80), 8080)},
		{Name: "admin", Protocol: corev1.ProtocolUDP, ContainerPort: 81},
	}}}
	number := h.next
	if len(h.free) > 0 {
		number, h.free = h.free[0], h.free[1:]
	}
	for _, format := range []string{"10.42.0.%d", "fd42::%x"} {
		addr := fmt.Sprintf(format, number)
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: addr})
		h.addrs[p.UID] = append(h.addrs[p.UID], netip.MustParseAddr(addr))
	}
	h.pods[p.UID] = p
	early := h.maybe()
	if early {
		h.attach(p)
	}
	h.engine.setPod(newPod(p, h.node))
	if !early {
		h.attach(p)
	}
}

func (h *history) attach(p *corev1.Pod) {
	if p.Spec.NodeName == h.node {
		h.engine.attach(&attachment{sandbox: "s-" + string(p.UID), namespace: p.Namespace, name: p.Name, uid: newPod(p, h.node).UID, addrs: h.addrs[p.UID]})
	}
}

func (h *history) anyPod() *corev1.Pod {
	uids := make([]types.UID, 0, len(h.pods))
	for uid := range h.pods {
		uids = append(uids, uid)
	}
	if len(uids) == 0 {
		return nil
	}
	slices.Sort(uids)
	return h.pods[pick(h.Rand, uids...)]
}

func (h *history) relabelPod(*testing.T) {
	if p := h.anyPod(); p != nil {
		p = p.DeepCopy()
		p.Labels = h.labels()
		h.pods[p.UID] = p
		h.engine.setPod(newPod(p, h.node))
	}
}

func (h *history) removePod(*testing.T) {
	p := h.anyPod()
	if p == nil {
		return
	}
	delete(h.pods, p.UID)
	if h.maybe() {
		h.engine.detach("s-" + string(p.UID))
		h.engine.removePod(newPod(p, h.node).UID)
	} else {
		h.engine.removePod(newPod(p, h.node).UID)
		h.engine.detach("s-" + string(p.UID))
	}
	h.free = append(h.free, int(h.addrs[p.UID][0].As4()[3]))
}

func (h *history) packet() packet {
	addrs := [][]string{
		{"10.42.0.1", "fd42::1"}, {"203.0.113.7", "2001:db8::7"}, {"203.0.113.200", "2001:db9::7"}, {"192.0.2.1", "fd00::1"},
	}
	f := h.IntN(2)
	end := func() netip.Addr {
		if p := h.anyPod(); p != nil && h.IntN(4) > 0 {
			return h.addrs[p.UID][f]
		}
		return netip.MustParseAddr(pick(h.Rand, addrs...)[f])
	}
	p := packet{src: end(), dst: end(), proto: pick(h.Rand, corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP, "")}
	if p.proto != "" {
		p.port = pick(h.Rand, int32(80), 81, 82, 83, 8080)
	}
	return p
}

var dual = []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16"), netip.MustParsePrefix("fd42::/48")}

// TestOracle makes histories of random events. After each event the table passes what a straightforward reading of the
// policies passes; and what the kernel has been told bit by bit is what it would be told at a start.
func TestOracle(t *testing.T) {
	histories := 150
	if testing.Short() {
		histories = 15
	}
	passed, denied := 0, 0
	for seed := range uint64(histories) {
		h := &history{
			Rand: rand.New(rand.NewPCG(seed, 1)), engine: newEngine([]family{4, 6}), next: 1,
			world: world{namespaces: map[string]labels.Set{}, policies: map[types.NamespacedName]*networkingv1.NetworkPolicy{},
				pods: map[types.UID]*corev1.Pod{}, addrs: map[types.UID][]netip.Addr{}, node: "here"},
		}
		kernel := knftables.NewFake(knftables.InetFamily, tableName)
		apply(t, kernel, func(tx *knftables.Transaction) { h.engine.table.writeAll(tx, network{dual, "cni0"}) })
		for range 60 {
			event := pick(h.Rand, h.setPolicy, h.setPolicy, h.removePolicy, h.setNamespace, h.removeNamespace, h.addPod, h.addPod, h.relabelPod, h.removePod)
			event(t)
			for range 20 {
				p := h.packet()
				want, got := h.world.passes(p), h.engine.table.passes(p)
				if want != got {
					t.Fatalf("seed %d: %+v passes: %v, should be %v", seed, p, got, want)
				}
				if want {
					passed++
				} else {
					denied++
				}
			}
			if h.maybe() { // otherwise it comes with the next event
				apply(t, kernel, h.engine.table.write)
				if h.IntN(3) == 0 {
					apply(t, kernel, h.engine.table.sweep)
				}
			}
		}
		apply(t, kernel, h.engine.table.write)
		apply(t, kernel, h.engine.table.sweep)
		if h.engine.table.dirty() {
			t.Fatalf("seed %d: there is more to write", seed)
		}
		fresh := knftables.NewFake(knftables.InetFamily, tableName)
		apply(t, fresh, func(tx *knftables.Transaction) { h.engine.table.writeAll(tx, network{dual, "cni0"}) })
		if got, want := dump(kernel), dump(fresh); got != want {
			t.Fatalf("seed %d: the kernel has\n%s\nand should have\n%s", seed, got, want)
		}
	}
	t.Logf("%d packets passed, %d were denied", passed, denied)
	if denied < passed/10 {
		t.Error("too few are denied to say anything")
	}
}

// TestEmpties: when everything is gone, nothing is left.
func TestEmpties(t *testing.T) {
	h := &history{
		Rand: rand.New(rand.NewPCG(1, 2)), engine: newEngine([]family{4, 6}), next: 1,
		world: world{namespaces: map[string]labels.Set{}, policies: map[types.NamespacedName]*networkingv1.NetworkPolicy{},
			pods: map[types.UID]*corev1.Pod{}, addrs: map[types.UID][]netip.Addr{}, node: "here"},
	}
	empty := len(h.engine.table.sets)
	for range 200 {
		pick(h.Rand, h.setPolicy, h.setNamespace, h.addPod, h.relabelPod, h.removePod)(t)
	}
	for len(h.pods) > 0 {
		h.removePod(t)
	}
	for name := range h.policies {
		h.engine.removePolicy(name.Namespace, name.Name)
	}
	e := h.engine
	for what, n := range map[string]int{"chains": len(e.table.chains), "sets": len(e.table.sets) - empty, "groups": len(e.groups),
		"named": len(e.named), "pods": len(e.pods), "local": len(e.sandboxes), "attached": len(e.sandboxesOf),
		"owner": len(e.owner), "known": len(e.allPods.n), "self": len(e.selfPairs), "policies": len(e.policies)} {
		if n != 0 {
			t.Errorf("%s: %d left", what, n)
		}
	}
	for name, s := range e.table.sets {
		if len(s.elems) > 0 {
			t.Errorf("set %s has %d elements", name, len(s.elems))
		}
	}
}

func apply(t *testing.T, kernel *knftables.Fake, write func(*knftables.Transaction)) {
	t.Helper()
	tx := kernel.NewTransaction()
	write(tx)
	if err := kernel.Run(context.Background(), tx); err != nil {
		t.Fatalf("%v in\n%s", err, tx)
	}
}

func dump(f *knftables.Fake) string {
	lines := strings.Split(f.Dump(), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// dirty reports whether there is anything to tell the kernel.
func (t *table) dirty() bool {
	if len(t.dropped) > 0 {
		return true
	}
	for _, c := range t.chains {
		if !c.written {
			return true
		}
	}
	for _, s := range t.sets {
		if !s.written || s.refill || len(s.changed) > 0 {
			return true
		}
	}
	return false
}
