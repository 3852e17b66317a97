package gateway

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	v1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/gatewayapi"
	"github.com/coracle-dev/coracle/pkg/core/addon"
)

// namedGateway returns Gateway front, which names a label and an annotation and has an address of each family.
func namedGateway() *v1.Gateway {
	g := &v1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "front", UID: "front"}}
	g.Spec.Infrastructure = &v1.GatewayInfrastructure{
		Labels:      map[v1.LabelKey]v1.LabelValue{"team": "web", v1.GatewayNameLabelKey: "another", discoveryv1.LabelManagedBy: "another"},
		Annotations: map[v1.AnnotationKey]v1.AnnotationValue{"about": "the front"},
	}
	g.Status.Addresses = []v1.GatewayStatusAddress{{Value: "192.0.2.1"}, {Value: "2001:db8::1"}}
	return g
}

// makeInfrastructure runs one turn for a Gateway that is served on ports 443 and 80, with what the client has in the stores.
func makeInfrastructure(t *testing.T, w *statusWriter, client *fake.Clientset, g *v1.Gateway, status metav1.ConditionStatus) ([]problem, error) {
	t.Helper()
	stores := map[string]cache.Store{}
	for _, plural := range []string{gateways, services, endpointSlices} {
		stores[plural] = cache.NewStore(cache.MetaNamespaceKeyFunc)
	}
	all, err := client.CoreV1().Services("").List(t.Context(), metav1.ListOptions{})
	sliced, err2 := client.DiscoveryV1().EndpointSlices("").List(t.Context(), metav1.ListOptions{})
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	for _, s := range all.Items {
		_ = stores[services].Add(&s)
	}
	for _, s := range sliced.Items {
		_ = stores[endpointSlices].Add(&s)
	}
	_ = stores[gateways].Add(g)
	w.Addresses = addon.NewGatewayAddresses(true, true)
	w.Addresses.SetGateways([]addon.Gateway{{UID: g.UID, Ports: []string{"80/TCP", "443/TCP"}}})
	client.ClearActions()
	accepted := []metav1.Condition{{Type: string(v1.GatewayConditionAccepted), Status: status}}
	return w.infrastructure(t.Context(), []gatewayapi.Status{{Kind: "Gateway", Object: g, Gateway: &v1.GatewayStatus{Conditions: accepted}}}, stores)
}

// wrote returns the verbs and resources of the writes of a turn.
func wrote(client *fake.Clientset) (out []string) {
	for _, a := range client.Actions() {
		if a.GetVerb() != "get" {
			out = append(out, a.GetVerb()+" "+a.GetResource().Resource)
		}
	}
	return out
}

// TestInfrastructure: the Service of a Gateway is made, follows the Gateway, is not written nor read while nothing changes, and goes when it is named no longer.
func TestInfrastructure(t *testing.T) {
	client := fake.NewClientset()
	w := writer(client)
	g := namedGateway()
	turn := func(what string, want ...string) {
		t.Helper()
		problems, err := makeInfrastructure(t, w, client, g, metav1.ConditionTrue)
		if got := wrote(client); err != nil || len(problems) > 0 || !slices.Equal(got, want) {
			t.Fatalf("%s: wrote %v, %v, %v, want %v", what, got, problems, err, want)
		}
	}
	service := func() *corev1.Service {
		t.Helper()
		s, err := client.CoreV1().Services("shop").Get(t.Context(), "front-coracle", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	turn("new", "create services", "create endpointslices", "create endpointslices")
	s := service()
	labels := map[string]string{"team": "web", v1.GatewayNameLabelKey: "front", discoveryv1.LabelManagedBy: madeByGateway}
	if !maps.Equal(s.Labels, labels) || s.Annotations["about"] != "the front" || s.Spec.ClusterIP != corev1.ClusterIPNone || len(s.Spec.Selector) > 0 || !metav1.IsControlledBy(s, g) {
		t.Errorf("%+v", s)
	}
	if len(s.Spec.Ports) != 2 || s.Spec.Ports[0].Name != "tcp-443" || s.Spec.Ports[1].Port != 80 {
		t.Errorf("%+v", s.Spec.Ports)
	}
	for suffix, address := range map[string]string{"-ipv4": "192.0.2.1", "-ipv6": "2001:db8::1"} {
		e, err := client.DiscoveryV1().EndpointSlices("shop").Get(t.Context(), "front-coracle"+suffix, metav1.GetOptions{})
		if err != nil || len(e.Endpoints) != 1 || e.Endpoints[0].Addresses[0] != address || e.Labels[discoveryv1.LabelServiceName] != s.Name || len(e.Ports) != 2 || !metav1.IsControlledBy(e, s) {
			t.Errorf("%s: %+v %v", suffix, e, err)
		}
	}
	turn("made") // the stores have it now
	if turn("the same"); len(client.Actions()) > 0 {
		t.Errorf("%v without a change", client.Actions())
	}
	g = g.DeepCopy()
	g.Spec.Infrastructure.Labels["team"] = "shop"
	turn("another label", "update services", "update endpointslices", "update endpointslices")
	if got := service().Labels["team"]; got != "shop" {
		t.Errorf("label team is %q", got)
	}
	g = g.DeepCopy()
	g.Status.Addresses = g.Status.Addresses[:1]
	turn("an address less", "update endpointslices")
	g = g.DeepCopy()
	g.Spec.Infrastructure = &v1.GatewayInfrastructure{}
	turn("named no longer", "delete services")
	turn("gone")
}

// TestInfrastructureOfOthers: a Service or EndpointSlice of the name that was not made for the Gateway is left alone, and people are told as long as it is there.
func TestInfrastructureOfOthers(t *testing.T) {
	g := namedGateway()
	before := func(change func(*corev1.Service)) *corev1.Service {
		s, _ := serviceOf(g, nil)
		change(s)
		return s
	}
	for _, c := range []struct {
		name   string
		object runtime.Object
		want   string // the reason
	}{
		{"a user's", &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "front-coracle"}}, "InfrastructureNotMade"},
		{"with the Gateway as owner only", before(func(s *corev1.Service) { s.Labels = nil }), "InfrastructureNotMade"},
		{"with an address", before(func(s *corev1.Service) { s.Spec.ClusterIP = "10.0.0.1" }), "InfrastructureNotMade"},
		{"of an earlier Gateway", before(func(s *corev1.Service) { s.OwnerReferences[0].UID = "earlier" }), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := fake.NewClientset(c.object)
			w := writer(client)
			for range 3 {
				problems, err := makeInfrastructure(t, w, client, g, metav1.ConditionTrue)
				if err != nil || len(wrote(client)) > 0 || (len(problems) > 0) != (c.want != "") || c.want != "" && problems[0].reason != c.want {
					t.Errorf("%v, %v, %v", problems, err, wrote(client))
				}
			}
			unnamed := g.DeepCopy()
			unnamed.Spec.Infrastructure = nil
			if problems, err := makeInfrastructure(t, w, client, unnamed, metav1.ConditionTrue); err != nil || len(problems) > 0 || len(wrote(client)) > 0 {
				t.Errorf("not named: %v, %v, %v", problems, err, wrote(client))
			}
		})
	}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "front-coracle-ipv4"}, AddressType: discoveryv1.AddressTypeIPv4}
	client := fake.NewClientset(slice)
	problems, err := makeInfrastructure(t, writer(client), client, g, metav1.ConditionTrue)
	if err != nil || len(problems) != 1 || slices.Contains(wrote(client), "update endpointslices") {
		t.Errorf("a foreign slice: %v, %v, %v", problems, err, wrote(client))
	}
}

// TestNoInfrastructure: nothing is asked of the API server for a Gateway that names nothing or is not accepted; a name that no Service can have and a refusal are told.
func TestNoInfrastructure(t *testing.T) {
	client := fake.NewClientset()
	unnamed := namedGateway()
	unnamed.Spec.Infrastructure = &v1.GatewayInfrastructure{}
	for g, accepted := range map[*v1.Gateway]metav1.ConditionStatus{unnamed: metav1.ConditionTrue, namedGateway(): metav1.ConditionFalse} {
		if problems, err := makeInfrastructure(t, writer(client), client, g, accepted); err != nil || len(problems) > 0 || len(client.Actions()) > 0 {
			t.Errorf("%v, %v, %v", problems, err, client.Actions())
		}
	}
	dotted := namedGateway()
	dotted.Name = "front.example"
	if problems, err := makeInfrastructure(t, writer(client), client, dotted, metav1.ConditionTrue); err != nil || len(problems) != 1 || len(client.Actions()) > 0 {
		t.Errorf("%v, %v, %v", problems, err, client.Actions())
	}
	full := true
	client.PrependReactor("create", "services", func(ktesting.Action) (bool, runtime.Object, error) {
		return full, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "services"}, "front-coracle", nil)
	})
	w := writer(client)
	for _, full = range []bool{true, false} {
		problems, err := makeInfrastructure(t, w, client, namedGateway(), metav1.ConditionTrue)
		if err != nil || (len(problems) == 1) != full {
			t.Errorf("full %v: %v, %v", full, problems, err)
		}
	}
}

// TestUnnamedInfrastructure: for a Gateway that names nothing no Service is put together at each turn.
func TestUnnamedInfrastructure(t *testing.T) {
	g := namedGateway()
	g.Spec.Infrastructure = nil
	w := writer(fake.NewClientset())
	w.Addresses = addon.NewGatewayAddresses(true, true)
	stores := map[string]cache.Store{gateways: cache.NewStore(cache.MetaNamespaceKeyFunc), services: cache.NewStore(cache.MetaNamespaceKeyFunc), endpointSlices: cache.NewStore(cache.MetaNamespaceKeyFunc)}
	_ = stores[gateways].Add(g) // in memory
	allocations := func(ports int) float64 {
		served := addon.Gateway{UID: g.UID}
		for n := range ports {
			served.Ports = append(served.Ports, fmt.Sprintf("%d/TCP", 8000+n))
		}
		w.Addresses.SetGateways([]addon.Gateway{served})
		return testing.AllocsPerRun(10, func() {
			if _, err := w.infrastructure(t.Context(), nil, stores); err != nil {
				t.Error(err)
			}
		})
	}
	if few, many := allocations(1), allocations(60); many > few+10 {
		t.Errorf("%v allocations with 1 port, %v with 60", few, many)
	}
}
