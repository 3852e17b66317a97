package routepolicy

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/translate"
	"github.com/coracle-dev/coracle/pkg/network/gateway"
	"github.com/coracle-dev/coracle/test/golden"
)

func read(t *testing.T) (out []*RoutePolicy) {
	t.Helper()
	data, err := os.ReadFile("testdata/policies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(data), "\n---\n") {
		p := &RoutePolicy{}
		if err := yaml.UnmarshalStrict([]byte(document), p); err != nil {
			t.Fatal(err)
		}
		out = append(out, p)
	}
	return out
}

// TestApply: what policies make of routes, in whatever order they are listed.
func TestApply(t *testing.T) {
	secrets := translate.Passwords{Secrets: map[types.NamespacedName]*corev1.Secret{
		{Namespace: "shop", Name: "users"}: {Data: map[string][]byte{"auth": []byte("bob:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=")}},
	}}
	policies, first := read(t), ""
	for range 2 {
		config := gateway.Config{Policies: map[string]gateway.Policy{"Ingress shop/old": {MaxBody: 1, Limits: &gateway.Limits{Concurrent: 1}}}}
		for _, source := range []string{"HTTPRoute shop/web", "Ingress shop/old", "HTTPRoute shop/closed", "HTTPRoute shop/free", "HTTPRoute other/web"} {
			r := gateway.Route{Source: source, Backends: []gateway.Backend{{Endpoints: "a", Weight: 1}}}
			if source == "Ingress shop/old" {
				r.Policy = source
			}
			config.Routes = append(config.Routes, r)
			config.Streams = append(config.Streams, gateway.Stream{Source: source, Hosts: []string{"pass.test"}, Backends: r.Backends})
		}
		sorted, statuses := Apply(&config, policies, secrets)
		text, err := json.MarshalIndent(config, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		out := string(text) + "\n"
		for i, p := range sorted {
			for _, a := range statuses[i].Ancestors {
				out += fmt.Sprintf("%s/%s: %s %s: %s %s\n", p.Namespace, p.Name, a.AncestorRef.Kind, a.AncestorRef.Name, a.Conditions[0].Reason, a.Conditions[0].Message)
			}
		}
		if first != "" && out != first {
			t.Errorf("another order gives another result:\n%s\n%s", first, out)
		}
		first = out
		slices.Reverse(policies)
	}
	golden.Check(t, "testdata/policies.golden.txt", first)
}

// TestReading: whatever the API server admits is read, and a policy that cannot be read closes its routes.
func TestReading(t *testing.T) {
	for name, c := range map[string]struct {
		spec   string
		closed bool
		most   int64
	}{
		"above int32":    {`"maxBodySize": 3000000000`, false, 3000000000},
		"a quantity":     {`"maxBodySize": "8Mi"`, false, 8 << 20},
		"above int64":    {`"maxBodySize": "1e30"`, true, 0},
		"none":           {`"maxBodySize": "many"`, true, 0},
		"negative":       {`"maxBodySize": -1`, true, 0},
		"another type":   {`"maxBodySize": {"a": 1}`, true, 0},
		"another object": {`"clients": [1]`, true, 0},
		"a wrong number": {`"rateLimit": {"concurrent": "x"}`, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var o unstructured.Unstructured
			text := `{"apiVersion": "coracle.dev/v1", "kind": "RoutePolicy", "metadata": {"namespace": "shop", "name": "p"},
				"spec": {"targetRefs": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "web"}], ` + c.spec + `}}`
			if err := o.UnmarshalJSON([]byte(text)); err != nil {
				t.Fatal(err)
			}
			config := gateway.Config{Routes: []gateway.Route{{Source: "HTTPRoute shop/web", Backends: []gateway.Backend{{Endpoints: "a", Weight: 1}}}}}
			_, statuses := Apply(&config, []*RoutePolicy{Read(&o)}, translate.Passwords{})
			r := config.Routes[0]
			if closed := len(r.Backends) == 0 && r.Unserved == 503; closed != c.closed || config.Policies[r.Policy].MaxBody != c.most {
				t.Errorf("%+v %+v", r, config.Policies)
			}
			if told := statuses[0].Ancestors[0].Conditions[0]; (told.Reason == invalid) != c.closed {
				t.Errorf("%+v", told)
			}
		})
	}
}
