package manifests

import (
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestAnAPIServiceThatWasTakenOverStays: somebody has installed a metrics-server of his own.
func TestAnAPIServiceThatWasTakenOverStays(t *testing.T) {
	const path = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io"
	const ours = "apiVersion: apiregistration.k8s.io/v1\nkind: APIService\nmetadata: {name: v1beta1.metrics.k8s.io}\nspec: {group: metrics.k8s.io, version: v1beta1}\n"
	lead := func(o *unstructured.Unstructured) {
		_ = unstructured.SetNestedMap(o.Object, map[string]any{"name": "a", "namespace": "b"}, "spec", "service")
	}
	for name, c := range map[string]struct {
		change func(*unstructured.Unstructured)
		stays  bool
	}{
		"ours":                            {func(*unstructured.Unstructured) {}, false},
		"taken over":                      {lead, true},
		"with the Service of the file":    {func(o *unstructured.Unstructured) { lead(o); own(o, `{"f:spec":{"f:service":{}}}`) }, false},
		"with other fields from the file": {func(o *unstructured.Unstructured) { lead(o); own(o, `{"f:spec":{"f:group":{}}}`) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			a, dir := newAPI(t), t.TempDir()
			d := a.start(dir)
			write(t, dir, map[string]string{"x.yaml": ours})
			expect(t, d, a, "v1beta1.metrics.k8s.io", "v1beta1.metrics.k8s.io")
			c.change(a.objects[path])
			if err := os.Remove(filepath.Join(dir, "x.yaml")); err != nil {
				t.Fatal(err)
			}
			left := ""
			if c.stays {
				left = "v1beta1.metrics.k8s.io"
			}
			expect(t, d, a, left, "")
			if len(d.inventory) != 0 {
				t.Error("the file is still in the inventory")
			}
		})
	}
}

// own says which fields our file sets.
func own(o *unstructured.Unstructured, fields string) {
	o.SetManagedFields([]metav1.ManagedFieldsEntry{{
		Manager: fieldManager, Operation: metav1.ManagedFieldsOperationApply, FieldsV1: metav1.NewFieldsV1(fields),
	}})
}
