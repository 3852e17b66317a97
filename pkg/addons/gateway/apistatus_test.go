package gateway

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/gatewayapi"
	"github.com/coracle-dev/coracle/pkg/addons/gateway/translate"
	"github.com/coracle-dev/coracle/pkg/core/addon"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// TestPlural: the status of each kind is written to its own path, which is that of its watch.
func TestPlural(t *testing.T) {
	watched := attachable()
	for _, kind := range []string{"ListenerSet", "HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute", "UDPRoute", "ReferenceGrant", "BackendTLSPolicy"} {
		if watched[plural(kind)] == nil {
			t.Errorf("%s: %s is not watched", kind, plural(kind))
		}
	}
	if plural("Gateway") != gateways || plural("GatewayClass") != gatewayClasses {
		t.Errorf("%s %s", plural("Gateway"), plural("GatewayClass"))
	}
}

// TestOthersEntries: entries of other controllers stay, ours that are no longer true go, and times change only with the status of a condition.
func TestOthersEntries(t *testing.T) {
	long := metav1.Unix(1000, 0)
	condition := func(status metav1.ConditionStatus) []metav1.Condition {
		return []metav1.Condition{{Type: "Accepted", Status: status, Reason: "R", LastTransitionTime: long}}
	}
	ref := func(name v1.ObjectName) v1.ParentReference { return v1.ParentReference{Name: name} }
	route := &v1.HTTPRoute{}
	route.Status.Parents = []v1.RouteParentStatus{
		{ParentRef: ref("same"), ControllerName: translate.Controller, Conditions: condition(metav1.ConditionTrue)},
		{ParentRef: ref("theirs"), ControllerName: "example.com/other", Conditions: condition(metav1.ConditionFalse)},
		{ParentRef: ref("gone"), ControllerName: translate.Controller, Conditions: condition(metav1.ConditionTrue)},
	}
	w := &statusWriter{Status: Status{Addresses: addon.NewGatewayAddresses(false, false)}}
	now := func(status metav1.ConditionStatus) []metav1.Condition {
		return []metav1.Condition{{Type: "Accepted", Status: status, Reason: "R"}}
	}
	w.fill(route, gatewayapi.Status{Parents: []v1.RouteParentStatus{
		{ParentRef: ref("same"), ControllerName: translate.Controller, Conditions: now(metav1.ConditionTrue)},
		{ParentRef: ref("new"), ControllerName: translate.Controller, Conditions: now(metav1.ConditionTrue)},
	}}, nil)
	got := map[v1.ObjectName]int64{}
	for _, p := range route.Status.Parents {
		got[p.ParentRef.Name] = p.Conditions[0].LastTransitionTime.Unix()
	}
	if len(got) != 3 || got["same"] != 1000 || got["theirs"] != 1000 || got["new"] == 1000 {
		t.Errorf("%+v", route.Status.Parents)
	}
	route.Status.Parents = route.Status.Parents[1:2]
	route.Status.Parents[0].ControllerName = translate.Controller
	if w.fill(route, gatewayapi.Status{}, nil); route.Status.Parents == nil || len(route.Status.Parents) != 0 {
		t.Errorf("%#v: the API refuses null", route.Status.Parents)
	}
}

// TestManyAddresses: a Gateway's status has as many addresses as the API allows, those of servers before those of agents, and one at least of each family.
func TestManyAddresses(t *testing.T) {
	node := func(server bool, addresses ...string) *corev1.Node {
		full := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{kube.ControlPlaneLabel: fmt.Sprint(server)}}}
		full.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		for _, a := range addresses {
			full.Status.Addresses = append(full.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
		}
		n := &corev1.Node{}
		trimNode(full, n)
		return n
	}
	nodes := []*corev1.Node{node(false, "fd00::2", "10.0.0.1"), node(true, "10.9.0.1", "fd00::1"), node(false, "10.9.0.1")}
	for i := range 20 {
		nodes = append(nodes, node(false, fmt.Sprintf("10.1.0.%d", i)))
	}
	w, next := &statusWriter{Status: Status{Addresses: addon.NewGatewayAddresses(false, true)}}, v1.GatewayStatus{}
	w.addresses(&v1.Gateway{}, &next, addressesOf(nodes))
	var got []string
	for _, a := range next.Addresses {
		got = append(got, a.Value)
	}
	if len(got) != 16 || !slices.Equal(got[:3], []string{"10.9.0.1", "fd00::1", "10.0.0.1"}) {
		t.Errorf("%s", got)
	}
	if fit := fitting(append(slices.Repeat([]string{"10.0.0.1"}, 16), "10.0.0.2", "fd00::1", "fd00::2")); len(fit) != 16 || fit[0] != "10.0.0.1" || fit[15] != "fd00::1" {
		t.Errorf("%s", fit)
	}
}
