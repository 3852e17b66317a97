package networkpolicy

import (
	"testing"

	"github.com/coracle-dev/coracle/pkg/core/footprint"
)

// TestFootprint: the tables that the enforcer writes are those that reset removes.
func TestFootprint(t *testing.T) {
	if footprint.PolicyTable != "inet "+tableName || footprint.PolicyBridgeTable != "bridge "+tableName {
		t.Errorf("the footprint names %q and %q, the enforcer writes tables %q", footprint.PolicyTable, footprint.PolicyBridgeTable, tableName)
	}
}
