package controlplane

import (
	"errors"

	corev1 "k8s.io/api/core/v1"

	"github.com/coracle-dev/coracle/pkg/addons/servicelb"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/network/tunnel"
)

// loadBalancers enters what gives Services of type LoadBalancer addresses, or what takes them back.
func (b batteries) loadBalancers(g *lifecycle.Group) {
	if b.cfg.Disabled("servicelb") {
		// As the administrator: the role goes with the service.
		g.Add("servicelb-removal", servicelb.Removal{Kubeconfig: b.cfg.Dirs.ServerConfig("admin.kubeconfig")}, b.lead, b.objects)
		return
	}
	g.Add("servicelb", servicelb.Balancers{
		Kubeconfig:   b.kubeconfig,
		Self:         b.cfg.Node.Name,
		Reserved:     reservedPorts(b.cfg),
		NodePorts:    b.cfg.Network.NodePorts,
		Ping:         b.hub.Ping,
		NoConnection: func(err error) bool { return errors.Is(err, tunnel.ErrNoTunnel) },
		Report:       func(all []state.LoadBalancer) { b.report.Detail(state.LoadBalancersDetail, all) },
	}, b.lead, b.objects)
}

// reservedPorts are those of coracle that the world outside, or other nodes, have to reach.
func reservedPorts(cfg config.Config) []servicelb.Reserved {
	all := []servicelb.Reserved{
		{Port: cfg.API.Port, Protocol: corev1.ProtocolTCP, Holder: "coracle (API server)", ServersOnly: true},
		{Port: 2380, Protocol: corev1.ProtocolTCP, Holder: "coracle (etcd)", ServersOnly: true},
		{Port: 10250, Protocol: corev1.ProtocolTCP, Holder: "coracle (kubelet)"},
	}
	if cfg.Network.Backend == config.VXLAN {
		all = append(all, servicelb.Reserved{Port: 8472, Protocol: corev1.ProtocolUDP, Holder: "coracle (vxlan)"})
	}
	return all
}
