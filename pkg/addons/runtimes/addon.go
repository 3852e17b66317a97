package runtimes

import (
	_ "embed" // the manifest

	"github.com/coracle-dev/coracle/pkg/core/addon"
)

//go:embed runtimes.yaml
var manifest []byte

// Addon is the row of the table of add-ons.
func Addon() addon.Addon {
	return addon.Addon{
		Name: "runtimes", Manifest: manifest,
		ControlPlane: func(s addon.Server) []addon.Component {
			return []addon.Component{{Name: "runtimes", After: []addon.Event{addon.Leading}, Component: Classes{Kubeconfig: s.Kubeconfig}}}
		},
	}
}
