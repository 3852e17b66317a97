package controlplane

import (
	"context"
	"testing"
)

type ended struct{}

// Run implements lifecycle.Component.
func (ended) Run(context.Context, func()) error { return nil }

// TestReportOfAFormerLeader: what a component has reported while this server led is void when it ends.
func TestReportOfAFormerLeader(t *testing.T) {
	forgotten := false
	c := ofLeader{ended{}, func() { forgotten = true }}
	if err := c.Run(t.Context(), func() {}); err != nil || !forgotten {
		t.Errorf("forgotten: %t, %v", forgotten, err)
	}
}
