package controlplane

import (
	"github.com/coracle-dev/coracle/pkg/components/localvolumes"
	"github.com/coracle-dev/coracle/pkg/lifecycle"
)

// localVolumes looks after volumes whose node is gone.
func (b batteries) localVolumes(g *lifecycle.Group) {
	if !b.cfg.Disabled("local-storage") {
		g.Add("local-volumes", localvolumes.Care{Kubeconfig: b.kubeconfig}, b.lead, b.objects)
	}
}
