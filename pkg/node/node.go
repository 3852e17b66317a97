// Package node is the composition root of a node: what it is made of, and what needs what.
package node

import (
	"github.com/coracle-dev/coracle/pkg/config"
	"github.com/coracle-dev/coracle/pkg/lifecycle"
	"github.com/coracle-dev/coracle/pkg/state"
)

// Add enters every part of a node into g.
func Add(g *lifecycle.Group, cfg config.Config, report *state.Recorder) error {
	return nil
}
