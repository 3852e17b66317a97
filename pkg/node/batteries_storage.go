package node

import (
	"github.com/coracle-dev/coracle/pkg/addons/localstorage"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/state"
)

// localStorage makes the volumes of this node. It is built here and not when it runs: see localstorage.New.
func (b batteries) localStorage(g *lifecycle.Group) error {
	if b.cfg.Disabled("local-storage") {
		return nil
	}
	storage, err := localstorage.New(localstorage.Options{
		Kubeconfig: b.who.node, Node: b.node,
		Report: func(v state.LocalVolumes) { b.report.Detail(state.VolumesDetail, v) },
	})
	if err != nil {
		return err
	}
	g.Add("local-storage", storage, b.registered)
	return nil
}
