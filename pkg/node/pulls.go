package node

import (
	"github.com/coracle-dev/coracle/pkg/components/containerd"
	"github.com/coracle-dev/coracle/pkg/config"
	"github.com/coracle-dev/coracle/pkg/registries"
	"github.com/coracle-dev/coracle/pkg/state"
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
