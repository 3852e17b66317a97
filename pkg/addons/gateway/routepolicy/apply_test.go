package routepolicy

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
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
