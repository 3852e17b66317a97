package node

import (
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/state"
)

// batteries are the services that --disable switches off one by one, as far as they run on a node.
type batteries struct {
	cfg        config.Config
	report     *state.Recorder
	who        identities
	node       *kube.OwnNode
	gate       *kube.APIGate
	cri        *lifecycle.Unit // containerd answers
	registered *lifecycle.Unit // the node's object is there
	asKubelet  *lifecycle.Unit // the kubelet has its certificate
}

// add enters them into g.
func (b batteries) add(g *lifecycle.Group) error {
	if err := b.localStorage(g); err != nil {
		return err
	}
	b.loadBalancerPorts(g)
	return nil
}
