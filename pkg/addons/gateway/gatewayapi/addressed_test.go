package gatewayapi

import (
	"fmt"
	"testing"

	v1 "sigs.k8s.io/gateway-api/apis/v1"
)

// TestAddressedInfrastructure: a Gateway's address is asked for by its own annotations and by those of spec.infrastructure, which count first.
func TestAddressedInfrastructure(t *testing.T) {
	o := own(shared())
	g := o.Gateways[0]
	g.Labels, g.Annotations = map[string]string{"tier": "front"}, map[string]string{"metallb.io/address-pool": "one", "about": "the front"}
	g.Spec.Infrastructure = &v1.GatewayInfrastructure{
		Labels:      map[v1.LabelKey]v1.LabelValue{"team": "web"},
		Annotations: map[v1.AnnotationKey]v1.AnnotationValue{"metallb.io/address-pool": "two"},
	}
	const want = "[map[team:web tier:front] map[about:the front metallb.io/address-pool:two]]"
	got := "["
	for _, a := range Translate(o).Addressed() {
		got += fmt.Sprint(a.Labels, a.Annotations)
	}
	if got += "]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if len(g.Annotations) != 2 || g.Annotations["metallb.io/address-pool"] != "one" {
		t.Errorf("the Gateway itself has changed: %v", g.Annotations)
	}
}
