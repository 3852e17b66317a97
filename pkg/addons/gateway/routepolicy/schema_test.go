package routepolicy

import (
	"os"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apimachinery/pkg/runtime"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

// TestSchema: the API server takes the definition, and its rules admit the sizes that the gateway can read and no others.
func TestSchema(t *testing.T) {
	data, err := os.ReadFile("../../../../manifests/route-policy-crds.yaml")
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	install.Install(scheme)
	var v1 apiextensionsv1.CustomResourceDefinition
	var crd apiextensions.CustomResourceDefinition
	if err := yaml.Unmarshal(data, &v1); err != nil {
		t.Fatal(err)
	}
	scheme.Default(&v1)
	if err := scheme.Convert(&v1, &crd, nil); err != nil {
		t.Fatal(err)
	}
	crd.Status.StoredVersions = []string{"v1"}
	if errs := validation.ValidateCustomResourceDefinition(t.Context(), &crd); len(errs) > 0 {
		t.Fatal(errs)
	}
	schema, err := structural.NewStructural(crd.Spec.Validation.OpenAPIV3Schema)
	if err != nil {
		t.Fatal(err)
	}
	rules := cel.NewValidator(schema, true, celconfig.PerCallLimit)
	for _, c := range []struct {
		size any
		ok   bool
	}{{int64(3000000000), true}, {"8Mi", true}, {"1", true}, {int64(0), false}, {int64(-1), false}, {"-1", false}, {"0", false}, {"many", false}} {
		object := map[string]any{"spec": map[string]any{"targetRefs": []any{}, "maxBodySize": c.size}}
		if errs, _ := rules.Validate(t.Context(), nil, schema, object, nil, celconfig.RuntimeCELCostBudget); (len(errs) == 0) != c.ok {
			t.Errorf("%v: %v", c.size, errs)
		}
	}
}
