package gatewayapi

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	v1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/translate"
	"github.com/coracle-dev/coracle/pkg/network/gateway"
	"github.com/coracle-dev/coracle/test/golden"
)

// objects reads testdata/gateways.yaml.
func objects(t *testing.T) (o Objects) {
	t.Helper()
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, v1.Install} {
		if err := add(known); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile("testdata/gateways.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(data), "\n---\n") {
		raw, err := yaml.ToJSON([]byte(document))
		if err != nil {
			t.Fatal(err)
		}
		object, _, err := serializer.NewCodecFactory(known).UniversalDeserializer().Decode(raw, nil, nil)
		if err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		switch object := object.(type) {
		case *v1.GatewayClass:
			o.Classes = append(o.Classes, object)
		case *v1.Gateway:
			o.Gateways = append(o.Gateways, object)
		case *v1.ListenerSet:
			o.ListenerSets = append(o.ListenerSets, object)
		case *v1.HTTPRoute:
			o.HTTPRoutes = append(o.HTTPRoutes, object)
		case *v1.GRPCRoute:
			o.GRPCRoutes = append(o.GRPCRoutes, object)
		case *v1.TLSRoute:
			o.TLSRoutes = append(o.TLSRoutes, object)
		case *v1.TCPRoute:
			o.TCPRoutes = append(o.TCPRoutes, object)
		case *v1.UDPRoute:
			o.UDPRoutes = append(o.UDPRoutes, object)
		case *v1.ReferenceGrant:
			o.Grants = append(o.Grants, object)
		case *v1.BackendTLSPolicy:
			o.Policies = append(o.Policies, object)
		case *corev1.Service:
			o.Services = append(o.Services, object)
		case *discoveryv1.EndpointSlice:
			o.Slices = append(o.Slices, object)
		default:
			t.Fatalf("%T", object)
		}
	}
	o.Version = "v1.6.3"
	o.Node = []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	o.Namespaces = map[string]map[string]string{"infra": {}, "shop": {"team": "shop"}, "evil": {}, "data": {}}
	o.Certificates = map[types.NamespacedName]translate.Certificate{
		{Namespace: "infra", Name: "shop"}:  {Chain: "the chain of shop", Key: "the key of shop"},
		{Namespace: "evil", Name: "secret"}: {Chain: "not to be used", Key: "not to be used"},
	}
	return o
}

// TestTranslate compares what comes of objects, in whatever order they are listed, with a golden file.
func TestTranslate(t *testing.T) {
	o := objects(t)
	var first string
	for range 2 {
		result := Translate(o)
		text, err := json.MarshalIndent(map[string]any{"config": result.Config, "endpoints": result.Endpoints}, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		out := string(text) + "\n" + statuses(result.Statuses(Applied{Refused: map[uint16]string{53: "another program has it"}}))
		if first != "" && out != first {
			t.Errorf("another order of the objects gives another result:\n%s\n%s", first, out)
		}
		first = out
		slices.Reverse(o.Gateways)
		slices.Reverse(o.ListenerSets)
		slices.Reverse(o.HTTPRoutes)
		slices.Reverse(o.Policies)
		slices.Reverse(o.Services)
	}
	golden.Check(t, "testdata/gateways.golden.txt", first)
}

// statuses writes each condition as a line, sorted.
func statuses(all []Status) string {
	var lines []string
	for _, s := range all {
		text, _ := json.Marshal(s) // the types of the API
		var fields map[string]any
		_ = json.Unmarshal(text, &fields)
		delete(fields, "Object")
		text, _ = json.Marshal(fields)
		lines = append(lines, fmt.Sprintf("%s %s/%s %s", s.Kind, s.Object.GetNamespace(), s.Object.GetName(), strings.ReplaceAll(string(text), `"lastTransitionTime":null,`, "")))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n"
}

// TestUnused: without a Gateway of our classes there is nothing to listen on.
func TestUnused(t *testing.T) {
	o := objects(t)
	o.Classes = o.Classes[1:]
	if result := Translate(o); len(result.Config.Listeners) != 0 || len(result.Ours) != 0 {
		t.Errorf("%+v", result.Config)
	}
}

// TestIntersect: of two names the one that means fewer hosts is what both mean.
func TestIntersect(t *testing.T) {
	for _, c := range []struct {
		a, b, want string
		ok         bool
	}{
		{"", "", "", true}, {"", "a.test", "a.test", true}, {"*.test", "a.b.test", "a.b.test", true}, {"*.test", "test", "", false},
		{"*.a.test", "*.test", "*.a.test", true}, {"a.test", "b.test", "", false}, {"*.a.test", "*.b.test", "", false},
	} {
		for range 2 {
			if got, ok := intersect(c.a, c.b); got != c.want || ok != c.ok {
				t.Errorf("%q and %q: %q %v", c.a, c.b, got, ok)
			}
			c.a, c.b = c.b, c.a
		}
	}
}

// TestEscapedPaths: a path is compared with those of requests as these are without escapes, except by an expression.
func TestEscapedPaths(t *testing.T) {
	for kind, want := range map[v1.PathMatchType]string{v1.PathMatchExact: "/a b/ü", v1.PathMatchPathPrefix: "/a b/ü", v1.PathMatchRegularExpression: "/a%20b/%C3%BC"} {
		m := v1.HTTPRouteMatch{Path: &v1.HTTPPathMatch{Type: &kind, Value: to("/a%20b/%C3%BC")}}
		if got, problem := httpMatch(m, func(_, _ string) *fault { return nil }); problem != nil || got.Path != want {
			t.Errorf("%s: %q, %v", kind, got.Path, problem)
		}
	}
}

// TestUnsupportedFilters: what a rule with a filter that is not supported matches is answered with an error, and leads nowhere else. Without another rule its route is not accepted.
func TestUnsupportedFilters(t *testing.T) {
	odd := v1.LocalObjectReference{Group: "example.com", Kind: "Auth", Name: "basic"}
	rewrite := v1.HTTPBackendRef{Filters: []v1.HTTPRouteFilter{{Type: v1.HTTPRouteFilterURLRewrite, URLRewrite: &v1.HTTPURLRewriteFilter{}}}}
	parents := v1.CommonRouteSpec{ParentRefs: []v1.ParentReference{{Name: "front", Namespace: to(v1.Namespace("infra"))}}}
	o := shared()
	for name, rule := range map[string]v1.HTTPRouteRule{
		"rule": {Filters: []v1.HTTPRouteFilter{{Type: v1.HTTPRouteFilterExtensionRef, ExtensionRef: &odd}}, BackendRefs: []v1.HTTPBackendRef{{}}}, "backend": {BackendRefs: []v1.HTTPBackendRef{rewrite}},
	} {
		o.HTTPRoutes = append(o.HTTPRoutes, &v1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: v1.HTTPRouteSpec{CommonRouteSpec: parents, Rules: []v1.HTTPRouteRule{rule}}})
	}
	o.GRPCRoutes = []*v1.GRPCRoute{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "rpc"}, Spec: v1.GRPCRouteSpec{
		CommonRouteSpec: parents, Rules: []v1.GRPCRouteRule{{Filters: []v1.GRPCRouteFilter{{Type: v1.GRPCRouteFilterExtensionRef, ExtensionRef: &odd}}}},
	}}}
	result := Translate(o)
	if len(result.Config.Routes) != 3 {
		t.Errorf("%+v", result.Config.Routes)
	}
	for _, r := range result.Config.Routes {
		if r.Unserved < 500 || len(r.Backends) > 0 {
			t.Errorf("%+v", r)
		}
	}
	if told := statuses(result.Statuses(Applied{})); strings.Count(told, `"reason":"UnsupportedValue","status":"False","type":"Accepted"`) != 3 {
		t.Error(told)
	}
}

// TestLargeExpressions: a rule with an expression that would take the memory of all servers is dropped, and a route that is attached nowhere costs
// nothing.
func TestLargeExpressions(t *testing.T) {
	o := objects(t)
	kind, text := v1.PathMatchRegularExpression, strings.Repeat("(b{1000}c{1000})", 60)
	i := slices.IndexFunc(o.HTTPRoutes, func(r *v1.HTTPRoute) bool {
		return slices.ContainsFunc(Translate(o).Config.Routes, func(one gateway.Route) bool { return one.Source == "HTTPRoute "+keyOf(r).String() })
	})
	attack := o.HTTPRoutes[i].DeepCopy()
	attack.Spec.Rules = attack.Spec.Rules[:1]
	attack.Spec.Rules[0].Matches = []v1.HTTPRouteMatch{{Path: &v1.HTTPPathMatch{Type: &kind, Value: &text}}}
	o.HTTPRoutes = []*v1.HTTPRoute{attack}
	for _, r := range Translate(o).Config.Routes {
		if r.Source == "HTTPRoute "+keyOf(attack).String() {
			t.Errorf("served: %+v", r)
		}
	}
	many := make([]*v1.HTTPRoute, 30)
	for n := range many { // each alone is admitted
		text := fmt.Sprintf("/%d(b{1000})", n)
		many[n] = attack.DeepCopy()
		many[n].Name, many[n].UID = fmt.Sprintf("r%02d", n), types.UID(fmt.Sprint(n))
		many[n].Spec.Rules[0].Matches = []v1.HTTPRouteMatch{{Path: &v1.HTTPPathMatch{Type: &kind, Value: &text}}}
	}
	o.HTTPRoutes = many
	result, dropped := Translate(o), 0
	for _, s := range result.Statuses(Applied{}) {
		if len(s.Parents) > 0 && strings.Contains(fmt.Sprint(s.Parents[0].Conditions), "of this namespace are too large together") {
			dropped++
		}
	}
	if dropped != 11 {
		t.Errorf("%d of 30 routes of a namespace are dropped", dropped)
	}
	read := false
	tr := &translation{}
	tr.attach(&route{object: attack, kind: "HTTPRoute", parents: []v1.ParentReference{{Name: "nothing"}}, rules: func(*gatewayState) compiled {
		read = true
		return compiled{}
	}})
	g := &gatewayState{}
	tr.byName = map[types.NamespacedName]*gatewayState{keyOf(attack): g}
	tr.attach(&route{object: attack, kind: "HTTPRoute", parents: []v1.ParentReference{{Name: v1.ObjectName(attack.Name)}}, rules: func(*gatewayState) compiled {
		read = true
		return compiled{}
	}})
	if read {
		t.Error("the rules of a route that is attached nowhere are read")
	}
}

// TestManyListeners: what ListenerSets add does not take the square of its time, which would be minutes here.
func TestManyListeners(t *testing.T) {
	const many = 200_000
	g := &gatewayState{object: &v1.Gateway{}}
	began := time.Now()
	for n := range many {
		l := &listener{owner: g.object, gateway: g, host: fmt.Sprint(n % (many - 1)), port: 80, protocol: v1.HTTPProtocolType}
		if l.conflicts(); (l.conflicted != nil) != (n == many-1) {
			t.Fatalf("listener %d: %+v", n, l.conflicted)
		}
		g.listeners = append(g.listeners, l)
		l.hold()
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
}
