package nodeclaims

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-dev/coracle/pkg/core/kube"
)

func node(name, ip string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Now()}}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip}}
	return n
}

func TestMine(t *testing.T) {
	p := TokenPublisher{Node: "a", IPs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}
	labelled, elsewhere := node("a", "192.0.2.1"), node("a", "192.0.2.9")
	labelled.Labels = map[string]string{kube.ControlPlaneLabel: "true"}
	elsewhere.Labels = labelled.Labels
	for name, test := range map[string]struct {
		node    *corev1.Node
		claimed bool
		want    bool
	}{
		"restored data":             {labelled, true, true},
		"another server":            {elsewhere, true, false},
		"an agent at this address":  {node("a", "192.0.2.1"), true, false},
		"the first start":           {node("a", "192.0.2.1"), false, true},
		"from a time before claims": {labelled, false, true},
	} {
		if got := p.mine(test.node, test.claimed); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
