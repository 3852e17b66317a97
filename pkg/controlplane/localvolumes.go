package controlplane

import (
	"github.com/coracle-dev/coracle/pkg/addons/localstorage/orphanvolumes"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// localVolumes looks after volumes whose node is gone.
func (b batteries) localVolumes(g *lifecycle.Group) {
	if !b.cfg.Disabled("local-storage") {
		g.Add("local-volumes", orphanvolumes.Care{Kubeconfig: b.kubeconfig}, b.lead, b.objects)
	}
}
