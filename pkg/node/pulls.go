package node

import (
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/runtime/containerd"
	"github.com/coracle-dev/coracle/pkg/runtime/registries"
)

// pulls says where images come from.
func pulls(cfg config.Config, report *state.Recorder) containerd.Pulls {
	file := cfg.Dirs.Registries()
	return containerd.Pulls{
		File: registries.NewLive(file), NoDefault: cfg.Node.NoDefaultRegistry,
		Report: func(wrong error) {
			r := state.Registries{File: file}
			if wrong != nil {
				r.Error = wrong.Error()
			}
			report.Detail(state.RegistriesDetail, r)
		},
	}
}
