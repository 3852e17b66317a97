package helm

import (
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	embedded "github.com/coracle-dev/coracle/manifests"
	"github.com/coracle-dev/coracle/pkg/core/config"
)

// definitions reads the kinds' definitions, which must be there with the service switched off, too.
func definitions(t *testing.T) map[string]map[string]any {
	t.Helper()
	files, err := embedded.Render(config.Config{
		Network: config.Network{DNS: []netip.Addr{netip.MustParseAddr("10.43.0.10")}}, Disable: []string{"helm-controller"},
	})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]map[string]any{}
	for _, f := range files {
		if f.Name != "helm-crds.yaml" {
			continue
		}
		for doc := range strings.SplitSeq(string(f.Data), "\n---\n") {
			var crd map[string]any
			if err := yaml.UnmarshalStrict([]byte(doc), &crd); err != nil {
				t.Fatal(err)
			}
			spec := crd["spec"].(map[string]any)
			out[spec["names"].(map[string]any)["kind"].(string)] = spec["versions"].([]any)[0].(map[string]any)
		}
	}
	return out
}

// properties are the names of the fields below a field of a kind.
func properties(t *testing.T, version map[string]any, field string) []string {
	t.Helper()
	at := version["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)["properties"].(map[string]any)
	var out []string
	for name := range at[field].(map[string]any)["properties"].(map[string]any) {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// jsonNames are the names of a struct's fields in JSON.
func jsonNames(v reflect.Type) []string {
	var out []string
	for f := range v.Fields() {
		if f.Anonymous {
			out = append(out, jsonNames(f.Type)...)
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// TestKinds holds the definitions to k3s' fields, and to those that we read and write.
func TestKinds(t *testing.T) {
	kinds := definitions(t)
	shared := []string{"failurePolicy", "forceConflicts", "serverSide", "values", "valuesContent", "valuesSecrets"}
	k3s := append([]string{
		"authPassCredentials", "authSecret", "backOffLimit", "bootstrap", "chart", "chartContent", "createNamespace",
		"dockerRegistrySecret", "driver", "helmVersion", "insecureSkipTLSVerify", "jobImage", "plainHTTP",
		"podSecurityContext", "repo", "repoCA", "repoCAConfigMap", "securityContext", "set", "takeOwnership",
		"targetNamespace", "timeout", "version",
		"serviceAccountName", // coracle's own
	}, shared...)
	slices.Sort(k3s)
	if got := properties(t, kinds["HelmChart"], "spec"); !slices.Equal(got, k3s) {
		t.Errorf("a HelmChart's fields are %v, want %v", got, k3s)
	}
	if got := properties(t, kinds["HelmChartConfig"], "spec"); !slices.Equal(got, shared) || !slices.Equal(jsonNames(reflect.TypeFor[overrides]()), shared) {
		t.Errorf("a HelmChartConfig's fields are %v, want %v", got, shared)
	}
	for _, name := range jsonNames(reflect.TypeFor[chartSpec]()) {
		if !slices.Contains(k3s, name) {
			t.Errorf("we read %s, which is not defined", name)
		}
	}
	status := append(jsonNames(reflect.TypeFor[chartStatus]()), "jobName")
	slices.Sort(status)
	if got := properties(t, kinds["HelmChart"], "status"); !slices.Equal(got, status) {
		t.Errorf("a status has %v, want %v", got, status)
	}
	if _, ok := kinds["HelmChart"]["subresources"].(map[string]any)["status"]; !ok {
		t.Error("the status is no subresource: writing it would look like a change")
	}
}

// TestTimeouts: the API must refuse what we cannot read, as far as a pattern can tell.
func TestTimeouts(t *testing.T) {
	at := definitions(t)["HelmChart"]["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)["properties"].(map[string]any)
	timeout := at["spec"].(map[string]any)["properties"].(map[string]any)["timeout"].(map[string]any)
	pattern := regexp.MustCompile(timeout["pattern"].(string))
	for text, want := range map[string]bool{"90s": true, "1h30m": true, "300": false, "1m30": false, "": false} {
		if pattern.MatchString(text) != want {
			t.Errorf("%q is accepted: %v", text, !want)
		}
		if _, err := time.ParseDuration(text); want != (err == nil) {
			t.Errorf("%q is read as a time: %v", text, err)
		}
	}
}

func TestOurs(t *testing.T) {
	for _, tt := range []struct {
		name        string
		annotations map[string]string
		spec        chartSpec
		want        bool
	}{
		{"a name", nil, chartSpec{Chart: "web"}, true},
		{"contents", nil, chartSpec{ChartContent: "x"}, true},
		{"no chart", nil, chartSpec{}, false},
		{"unmanaged", map[string]string{unmanagedAnnotation: ""}, chartSpec{Chart: "web"}, false},
		{"k3s'", map[string]string{managedByAnnotation: "helm-controller"}, chartSpec{Chart: "web"}, true},
		{"another's", map[string]string{managedByAnnotation: "rke2"}, chartSpec{Chart: "web"}, false},
	} {
		ch := &chart{Spec: tt.spec}
		ch.Annotations = tt.annotations
		if ch.managed() != tt.want {
			t.Errorf("%s: ours is %v", tt.name, !tt.want)
		}
	}
}
