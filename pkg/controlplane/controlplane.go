// Package controlplane is the composition root of the control plane: what it is made of, and what needs what.
package controlplane

import (
	"github.com/coracle-dev/coracle/pkg/config"
	"github.com/coracle-dev/coracle/pkg/lifecycle"
	"github.com/coracle-dev/coracle/pkg/state"
)

// Add enters every part of the control plane into g.
func Add(g *lifecycle.Group, cfg config.Config, report *state.Recorder) error {
	return nil
}
