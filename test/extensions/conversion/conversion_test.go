// Package conversion is an example of versions that convert without loss, and of the migration of what is stored.
package conversion

import (
	"testing"

	"github.com/coracle-dev/coracle/test/extensions/cluster"
)

// TestConversion writes objects in one version and reads them in another.
func TestConversion(t *testing.T) {
	c := cluster.Start(t, "conversion", cluster.Options{})
	c.Run(t, "autoscalers", func(t *testing.T, s cluster.Space) {
		s.Kubectl(t, "apply", "-f", "hpa.yaml")
		before := s.Kubectl(t, "get", "horizontalpodautoscalers.v2.autoscaling", "web", "-o", "jsonpath={.spec}")
		s.Play(t, "There and back")
		if after := s.Kubectl(t, "get", "horizontalpodautoscalers.v2.autoscaling", "web", "-o", "jsonpath={.spec}"); after != before {
			t.Errorf("written as v1, the autoscaler is\n%s\nand was\n%s", after, before)
		}
	})
	c.Run(t, "migration", func(t *testing.T, s cluster.Space) { s.Play(t, "Migration") })
}
