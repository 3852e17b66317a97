package helm

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

// stored are the Secrets of a test, by name and key.
type stored map[string]map[string]string

func (s stored) read(_ context.Context, name string) (*corev1.Secret, error) {
	keys, ok := s[name]
	if !ok {
		return nil, nil
	}
	secret := &corev1.Secret{Data: map[string][]byte{}}
	for k, v := range keys {
		secret.Data[k] = []byte(v)
	}
	return secret, nil
}

// spec reads a spec from YAML, as people write it.
func spec(t *testing.T, text string) chartSpec {
	t.Helper()
	var s chartSpec
	if err := yaml.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestMergeValues(t *testing.T) {
	secrets := stored{"s": {"a": "x: secret a\nw: secret a", "b": "w: secret b", "broken": "hunter2: [", "text": "hunter2"}}
	for _, tt := range []struct{ name, chart, config, want, followed string }{
		{"nothing", ``, ``, `{}`, ``},
		{"mappings are merged", `valuesContent: "a: {b: 1, c: 2}"`, `valuesContent: "a: {c: 3}"`, `{"a":{"b":1,"c":3}}`, ``},
		{"lists are replaced", `valuesContent: "a: [1, 2]"`, `valuesContent: "a: [3]"`, `{"a":[3]}`, ``},
		{"null stays", `valuesContent: "a: {b: 1}"`, `valuesContent: "a: null"`, `{"a":null}`, ``},
		{"values over valuesContent", `{valuesContent: "x: 1\nw: 1", values: {x: 2}}`, ``, `{"w":1,"x":2}`, ``},
		{"secrets over values, keys in order", `{values: {x: 1, w: 1, z: 1}, valuesSecrets: [{name: s, keys: [a, b]}]}`, ``,
			`{"w":"secret b","x":"secret a","z":1}`, ``},
		{"the config over the chart's secrets", `valuesSecrets: [{name: s, keys: [a]}]`, `valuesContent: "x: config"`,
			`{"w":"secret a","x":"config"}`, ``},
		{"set over all", `{set: {x: mine}}`, `values: {x: config}`, `{"x":"mine"}`, ``},
		{"ignored secrets cause nothing", `{valuesSecrets: [{name: s, keys: [b, none], ignoreUpdates: true}, {name: none, keys: [a], ignoreUpdates: true}]}`, ``,
			`{"w":"secret b"}`, `{}`},
		{"no keys, nothing", `valuesSecrets: [{name: s}]`, ``, `{}`, ``},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all, followed, err := mergeValues(t.Context(), spec(t, tt.chart), spec(t, tt.config).overrides, secrets.read)
			if err != nil {
				t.Fatal(err)
			}
			if got := text(t, all); got != tt.want {
				t.Errorf("values are %s, want %s", got, tt.want)
			}
			if tt.followed == "" {
				tt.followed = tt.want
			}
			if got := text(t, followed); got != tt.followed {
				t.Errorf("followed are %s, want %s", got, tt.followed)
			}
		})
	}
}

func TestMergeValuesComplains(t *testing.T) {
	secrets := stored{"s": {"broken": "hunter2: [", "text": "hunter2", "large": "a: " + strings.Repeat("hunter2 ", 100_000)}}
	for _, tt := range []struct{ name, chart, config, want string }{
		{"no YAML", `valuesContent: "a: ["`, ``, "valuesContent is not a YAML mapping"},
		{"no mapping", ``, `valuesContent: "a"`, "HelmChartConfig: valuesContent is not a YAML mapping"},
		{"no Secret", `valuesSecrets: [{name: none, keys: [a]}]`, ``, "there is no Secret none"},
		{"no key", `valuesSecrets: [{name: s, keys: [a]}]`, ``, "Secret s has no key a"},
		{"a broken Secret", `valuesSecrets: [{name: s, keys: [broken]}]`, ``, "key broken of Secret s"},
		{"text in a Secret", `valuesSecrets: [{name: s, keys: [text]}]`, ``, "key text of Secret s"},
		{"too many keys of one Secret", "valuesSecrets: [{name: s, keys: [" + strings.Repeat("large,", 65) + "]}]", ``, "more than 64 keys"},
		{"too much in Secrets", "valuesSecrets: [{name: s, keys: [" + strings.Repeat("large,", 11) + "]}]", ``, "more than 8 MiB"},
		{"long lists", `set: {"a[40000]": x, "b[1],c[+40000].d[20000]": x}`, ``, "100000 together"},
		{"long lists behind values", `set: {a: "{x}b[60000]=y", c: "{x}d[60000]=y"}`, ``, "100000 together"},
		{"set", `set: {"a[x]": x}`, ``, "set: a[x]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := mergeValues(t.Context(), spec(t, tt.chart), spec(t, tt.config).overrides, secrets.read)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("error is %v, want %s", err, tt.want)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error tells a secret: %v", err)
			}
		})
	}
}

func TestSet(t *testing.T) {
	got := map[string]any{"rbac": map[string]any{"keep": 1}}
	err := set(map[string]intstr.IntOrString{
		"rbac.enabled": intstr.FromString("true"), "n": intstr.FromInt32(3), "text": intstr.FromString("3"),
		"none": intstr.FromString("null"), "list": intstr.FromString("a,b"), "escaped": intstr.FromString(`a\,b`),
		"items[0].name": intstr.FromString("x"), `dots\.in\.name`: intstr.FromString("y"), "brace": intstr.FromString("{a,b}"),
		"off": intstr.FromString("FALSE"), "on": intstr.FromString("True"), "nothing": intstr.FromString("Null"),
	}, got)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"brace":["a,b"],"dots.in.name":"y","escaped":"a,b","items":[{"name":"x"}],"list":"a,b","n":3,"none":null,"nothing":null,"off":false,"on":true,` +
		`"rbac":{"enabled":true,"keep":1},"text":"3"}`
	if text(t, got) != want {
		t.Errorf("got %s, want %s", text(t, got), want)
	}
}

func TestHash(t *testing.T) {
	of := func(c *chart, content string, o overrides, values map[string]any) string {
		h, err := hash([]byte("k"), c, content, o, values)
		if err != nil || len(h) != 40 {
			t.Fatal(h, err)
		}
		return h
	}
	base := of(&chart{}, "", overrides{}, nil)
	for _, tt := range []struct {
		name    string
		text    string
		content string
		values  map[string]any
		same    bool
	}{
		{name: "nothing", same: true},
		{name: "login", text: `{authSecret: {name: x}, repoCA: x, insecureSkipTLSVerify: true, plainHTTP: true}`, same: true},
		{name: "the text of the values", text: `valuesContent: "a: 1"`, same: true}, // counts as merged
		{name: "values", values: map[string]any{"a": 1}},
		{name: "version", text: `version: 2.0.0`},
		{name: "contents", content: "x"},
		{name: "timeout", text: `timeout: 2m0s`},
		{name: "conflicts", text: `forceConflicts: true`},
		{name: "policy", text: `failurePolicy: abort`},
	} {
		s := spec(t, tt.text)
		if got := of(&chart{Spec: s}, tt.content, s.overrides, tt.values); (got == base) != tt.same {
			t.Errorf("%s: the hash differs: %v", tt.name, got != base)
		}
	}
	if other, err := hash([]byte("l"), &chart{}, "", overrides{}, nil); err != nil || other == base {
		t.Error("the key changes nothing")
	}
	again := &chart{}
	again.Annotations = map[string]string{retryAnnotation: "1"}
	if of(again, "", overrides{}, nil) == base {
		t.Error("the annotation to try again changes nothing")
	}
}

func text(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
