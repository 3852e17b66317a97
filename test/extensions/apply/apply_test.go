// Package apply is an example of server-side apply and of pruning.
package apply

import (
	"testing"

	"github.com/coracle-dev/coracle/test/extensions/cluster"
)

// TestApply plays managers in conflict, and what is pruned.
func TestApply(t *testing.T) {
	c := cluster.Start(t, "apply", cluster.Options{})
	c.Run(t, "managers", func(t *testing.T, s cluster.Space) {
		s.Play(t, "Two managers")
		s.Play(t, "What would change")
	})
	for _, heading := range []string{"Pruning by label", "Pruning with an ApplySet"} {
		c.Run(t, heading, func(t *testing.T, s cluster.Space) {
			s.Kubectl(t, "create", "configmap", "stranger")
			s.Play(t, heading)
			s.Kubectl(t, "get", "configmap", "stranger") // what was not applied stays
		})
	}
}
