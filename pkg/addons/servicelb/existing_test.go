package servicelb

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/coracle-dev/coracle/pkg/core/config"
)

// TestExisting warns about a Service that has had the API's port since before the plugin, and leaves it as it is.
func TestExisting(t *testing.T) {
	server := member("server", "192.0.2.1", func(n *corev1.Node) { n.Labels[controlPlane] = "true" })
	legacy, free := offer("legacy", []int32{80, 6443}, "192.0.2.1"), offer("free", []int32{80}, "192.0.2.1")
	client := fake.NewClientset(server, legacy, free)
	p := newPlugin(config.Config{API: config.API{Port: 6443}, Network: config.Network{ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.43.0.0/16")}}})
	p.client = client
	if err := p.warn(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	events, err := client.CoreV1().Events("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(events.Items) != 1 || events.Items[0].InvolvedObject.Name != "legacy" || events.Items[0].Reason != "PortReserved" ||
		!strings.Contains(events.Items[0].Message, "port 6443/TCP of 192.0.2.1 is held by coracle (API server) on node server") {
		t.Errorf("the events are %+v", events.Items)
	}
	if now, err := client.CoreV1().Services("shop").Get(t.Context(), "legacy", metav1.GetOptions{}); err != nil || len(now.Spec.ExternalIPs) != 1 {
		t.Errorf("the Service is %+v, %v", now, err)
	}
}
