package e2e

import (
	"testing"

	"github.com/coracle-dev/coracle/test/hosts"
)

// TestBadJoins is what must not let a machine into a cluster, or not further than it may go.
func TestBadJoins(t *testing.T) {
	c := hosts.NewCluster(t, hosts.Plan{Servers: 1, Agents: 1})
	_ = c
}
