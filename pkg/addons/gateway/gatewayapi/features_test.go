package gatewayapi

import (
	"slices"
	"testing"

	v1 "sigs.k8s.io/gateway-api/apis/v1"
)

// TestFeatures: they are sorted, and what only the experimental channel has fields for is not declared with the standard one.
func TestFeatures(t *testing.T) {
	for _, experimental := range []bool{false, true} {
		all := features(experimental)
		if !slices.IsSorted(all) || slices.Contains(all, v1.FeatureName("HTTPRouteRetry")) != experimental || !slices.Contains(all, v1.FeatureName("HTTPRoute")) {
			t.Errorf("experimental: %v: %v", experimental, all)
		}
	}
}
