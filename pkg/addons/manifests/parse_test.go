package manifests

import (
	"fmt"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	const configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: "
	for _, tt := range []struct {
		name, in string
		want     string // KIND/NAME@LINE, or the errors
	}{
		{"empty", "", ""},
		{"comments only", "# a\n---\n# b\n--- # c\n...\n", ""},
		{"one", configMap + "a\n", "ConfigMap/a@1"},
		{"after comments", "# x\n\n" + configMap + "a\n", "ConfigMap/a@3"},
		{"several", configMap + "a\n---\n" + configMap + "b\n--- # three\n\n" + configMap + "c", "ConfigMap/a@1 ConfigMap/b@6 ConfigMap/c@12"},
		{"windows", strings.ReplaceAll(configMap+"a\n---\n"+configMap+"b\n", "\n", "\r\n"), "ConfigMap/a@1 ConfigMap/b@6"},
		{"dashes in a text", configMap + "a\ndata:\n  x: |\n    ---\n    y\n", "ConfigMap/a@1"},
		{"a document that begins on the dashes", "--- {apiVersion: v1, kind: Secret, metadata: {name: s}}\n", "Secret/s@1"},
		{"json", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"j"}}`, "ConfigMap/j@1"},
		{"list", "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: s}}\n- {apiVersion: v1, kind: Secret, metadata: {name: t}}\n",
			"Secret/s@1 Secret/t@1"},
		{"typed list", "apiVersion: v1\nkind: SecretList\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: s}}\n", "Secret/s@1"},
		{"empty list", "apiVersion: v1\nkind: List\nitems: []\n", ""},

		{"bad indent", configMap + "a\n---\n" + configMap + "b\n x: y\n", "line 10: did not find expected key"},
		{"key twice", configMap + "a\n---\n" + configMap + "b\nkind: Secret\n", `line 10: key "kind" already set in map`},
		{"tab", configMap + "a\ndata:\n\tx: y\n", "line 6: found character that cannot start any token"},
		{"no kind", "# x\nfoo: bar\n", "line 2: not a Kubernetes object: apiVersion or kind is missing"},
		{"a word", "hello\n", "line 1: not a Kubernetes object: apiVersion or kind is missing"},
		{"no name", "apiVersion: v1\nkind: ConfigMap\n", "line 1: ConfigMap: metadata.name is missing"},
		{"generated name", "apiVersion: v1\nkind: Pod\nmetadata: {generateName: x-}\n",
			"line 1: Pod: give it metadata.name: with generateName it would be another object at each start"},
		{"two mistakes", "a: b\n---\n" + "c: d\n", "line 1: not a Kubernetes object: apiVersion or kind is missing; " +
			"line 3: not a Kubernetes object: apiVersion or kind is missing"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			objects, err := parse([]byte(tt.in))
			var got []string
			for _, o := range objects {
				got = append(got, fmt.Sprintf("%s/%s@%d", o.GetKind(), o.GetName(), o.line))
			}
			text := strings.Join(got, " ")
			if err != nil {
				text = oneLine(err)
			}
			if text != tt.want {
				t.Errorf("got  %q\nwant %q", text, tt.want)
			}
		})
	}
}
