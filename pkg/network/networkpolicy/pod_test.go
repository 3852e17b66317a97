package networkpolicy

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

func TestNewPod(t *testing.T) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "p", UID: "object", Labels: map[string]string{"app": "a"},
		Annotations: map[string]string{"note": "large"}}}
	p.Spec.NodeName = "here"
	p.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 80, Protocol: corev1.ProtocolTCP}, {ContainerPort: 81}}}}
	p.Spec.InitContainers = []corev1.Container{
		{Ports: []corev1.ContainerPort{{Name: "init", ContainerPort: 90}}},
		{Ports: []corev1.ContainerPort{{Name: "side", ContainerPort: 91, Protocol: corev1.ProtocolUDP}}, RestartPolicy: new(corev1.ContainerRestartPolicyAlways)},
	}
	p.Status.PodIPs = []corev1.PodIP{{IP: "10.42.0.2"}, {IP: "fd42::2"}}
	got := newPod(p, "here")
	if !got.local || got.UID != "x/p/object" || got.Labels["app"] != "a" || got.Annotations != nil || fmt.Sprint(got.addrs) != "[10.42.0.2 fd42::2]" {
		t.Errorf("got %+v", got)
	}
	if want := "[{{web tcp} 80} {{side udp} 91}]"; fmt.Sprint(got.ports) != want {
		t.Errorf("the ports are %v, want %s", got.ports, want)
	}
	p.Annotations[corev1.MirrorPodAnnotationKey] = "static"
	if got := newPod(p, "there"); got.local || got.UID != "x/p/static" {
		t.Errorf("a static pod elsewhere: %+v", got)
	}
}

// TestMirrorIsNoPeer: a node that makes mirrors of static pods in other namespaces is not let in where all pods of these namespaces are.
func TestMirrorIsNoPeer(t *testing.T) {
	policy := denyAll("x")
	policy.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}}}}
	e := newEngine([]family{4})
	if err := e.setPolicy(policy); err != nil {
		t.Fatal(err)
	}
	mirror := func(name, uid, ip string, labels map[string]string) *pod {
		return newPod(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: name, UID: "u", Labels: labels, Annotations: map[string]string{corev1.MirrorPodAnnotationKey: uid}},
			Status:     corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: ip}}},
		}, "here")
	}
	e.attach(at(podOf("x", "app", nil, true, nil), "10.42.0.2"))
	e.setPod(podOf("x", "app", nil, true, nil))
	e.setPod(podOf("x", "friend", nil, false, nil, "10.42.1.2"))
	e.setPod(mirror("labelled", "1", "10.42.1.3", map[string]string{"app": "a"}))
	e.setPod(mirror("stranger", "2", "10.42.1.4", nil))
	e.setPod(mirror("stranger-without-uid", "", "10.42.1.5", nil))
	var peers []string
	for _, g := range e.groups {
		for a := range e.table.sets[groupSet(g.spec.key, 4)].elems {
			peers = append(peers, a.a.String())
		}
	}
	if slices.Sort(peers); fmt.Sprint(peers) != "[10.42.0.2 10.42.1.2 10.42.1.3]" {
		t.Errorf("the peers are %v", peers)
	}
}

// TestForgedUID: a pod that claims to be another one, as the annotation of static pods lets it, is none the less itself.
func TestForgedUID(t *testing.T) {
	e := newEngine([]family{4})
	if err := e.setPolicy(denyAll("x")); err != nil {
		t.Fatal(err)
	}
	e.setPod(podOf("x", "mine", map[string]string{"app": "a"}, true, nil))
	a := at(podOf("x", "mine", nil, true, nil), "10.42.0.2")
	e.attach(a)
	forged := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "y", Name: "mine", UID: "other", Labels: map[string]string{"app": "b"},
		Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "mine"}}}
	e.setPod(newPod(forged, ""))
	if len(e.pods) != 2 || a.labels["app"] != "a" {
		t.Errorf("there are %d pods, and the one of x has %v", len(e.pods), a.labels)
	}
}

// TestAddressOfOwnPod: what a pod of this node has is what CNI gave it, not what its status says, which may be old.
func TestAddressOfOwnPod(t *testing.T) {
	e := newEngine([]family{4})
	mine := podOf("x", "mine", nil, true, nil, "10.42.0.2")
	e.setPod(mine)
	e.setPod(podOf("x", "other", nil, false, nil, "10.42.1.2"))
	known := func() string { return fmt.Sprint(sorted(e.table.sets["pods4"].elems)) }
	only := fmt.Sprint([]elem{{a: podOf("", "", nil, false, nil, "10.42.1.2").addrs[0]}})
	if known() != only {
		t.Errorf("known are %s", known())
	}
	e.attach(at(mine, "10.42.0.9"))
	if len(e.table.sets["pods4"].elems) != 2 {
		t.Errorf("known are %s", known())
	}
	again := at(podOf("x", "again", nil, true, nil), "10.42.0.9") // nobody told that the first is gone
	e.attach(again)
	if known() != only || len(e.sandboxes) != 1 {
		t.Errorf("known are %s", known())
	}
}

// TestUnreadable: a policy that cannot be read is told of, until it can be.
func TestUnreadable(t *testing.T) {
	b := newBench(t)
	bad := denyAll("x")
	bad.Spec.PodSelector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Perhaps"}}}
	bad.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{}} // from everywhere
	b.setPolicy(bad)
	if got := b.engine.isolatedDirections("x"); got != [directions]bool{true, false} {
		t.Errorf("isolated: %v", got)
	}
	if p := b.engine.policies["x"][bad.Name]; !p.subject.Matches(labels.Set{"b": "c"}) || len(p.allowed[ingress].rules) > 0 || p.allowed[egress] != nil {
		t.Errorf("it became %+v", p)
	}
	if len(b.problems) != 1 || b.policies != 1 {
		t.Errorf("%d policies, problems %v", b.policies, b.problems)
	}
	b.setPolicy(denyAll("x"))
	if len(b.problems) != 0 || b.policies != 1 {
		t.Errorf("%d policies, problems %v", b.policies, b.problems)
	}
}

// TestPolicyTypes: without policyTypes a policy isolates for ingress, and for egress if it has egress rules, as the API defines.
func TestPolicyTypes(t *testing.T) {
	rule := []networkingv1.NetworkPolicyEgressRule{{}}
	for name, tt := range map[string]struct {
		spec    networkingv1.NetworkPolicySpec
		in, out bool
	}{
		"nothing":      {networkingv1.NetworkPolicySpec{}, true, false},
		"egress rules": {networkingv1.NetworkPolicySpec{Egress: rule}, true, true},
		"only ingress": {networkingv1.NetworkPolicySpec{Egress: rule, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}}, true, false},
		"only egress":  {networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}}, false, true},
	} {
		if in, out := typesOf(tt.spec); in != tt.in || out != tt.out {
			t.Errorf("%s: ingress %t, egress %t", name, in, out)
		}
	}
}
