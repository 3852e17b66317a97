package definitions

import (
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// noMatch is a client's error for a kind of the Gateway API that the API server does not know.
var noMatch = regexp.MustCompile(`no matches for kind "(\w+)" in version "gateway\.networking\.k8s\.io/(\w+)"`)

// Hint returns a sentence for users whose command failed with a message, if that is because the definitions are not installed; otherwise "". It
// does not send anybody after kinds and versions that these definitions do not have.
func Hint(message string) string {
	for _, unknown := range noMatch.FindAllStringSubmatch(message, -1) {
		if serves(unknown[1], unknown[2]) {
			return "The definitions of the Gateway API come on request: run 'coracle gateway-api' once for the cluster (on a server, or with KUBECONFIG set), then repeat this command."
		}
	}
	return ""
}

// serves reports whether a kind has a version with these definitions.
func serves(kind, version string) bool {
	objects, _ := read(Standard) // a test reads them
	return slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool {
		name, _, _ := unstructured.NestedString(o.Object, "spec", "names", "kind")
		versions, _, _ := unstructured.NestedSlice(o.Object, "spec", "versions")
		return name == kind && slices.ContainsFunc(versions, func(v any) bool {
			v1, _ := v.(map[string]any)
			return v1["name"] == version && v1["served"] == true
		})
	})
}
