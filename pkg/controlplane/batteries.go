package controlplane

import (
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/network/tunnel"
)

// batteries are the services that --disable switches off one by one, as far as they run in the control plane.
type batteries struct {
	cfg           config.Config
	report        *state.Recorder
	kubeconfig    string // of coracle's own parts
	usage         resourceMetrics
	lead, objects *lifecycle.Unit // this server leads; the objects that we bring are there
	hub           *tunnel.Hub     // of the nodes' connections to this server
}

// add enters them into g.
func (b batteries) add(g *lifecycle.Group) error {
	b.usage.add(g, b.objects)
	b.charts(g)
	b.loadBalancers(g)
	b.localVolumes(g)
	return nil
}
