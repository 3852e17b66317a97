package node

import (
	"github.com/coracle-dev/coracle/pkg/addons/servicelb"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// loadBalancerPorts answers which ports of this node are in use, when Services of type LoadBalancer want them.
func (b batteries) loadBalancerPorts(g *lifecycle.Group) {
	if !b.cfg.Disabled("servicelb") {
		g.Add("lb-ports", servicelb.Ports{Node: b.node, Kubeconfig: b.who.kubelet}, b.registered, b.asKubelet)
	}
}
