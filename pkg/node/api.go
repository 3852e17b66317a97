package node

import (
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/network/announcer"
	"github.com/coracle-dev/coracle/pkg/network/apibalancer"
	"github.com/coracle-dev/coracle/pkg/network/gateway"
	"github.com/coracle-dev/coracle/pkg/network/nodetunnel"
	"github.com/coracle-dev/coracle/pkg/network/tcpbalancer"
)

// apiBalancer is the connection of this node to the API.
func apiBalancer(cfg config.Config, gate *kube.APIGate, report *state.Recorder) *apibalancer.Balancer {
	o := apibalancer.Options{
		Listen:  cfg.Node.Balancer().String(),
		Servers: slices.Clone(cfg.Join.Servers), File: cfg.Dirs.Servers(),
		Kubeconfig: cfg.Dirs.NodeConfig("node.kubeconfig"), APIReady: gate.Opened(), CA: cfg.Dirs.NodeCA(),
		Report: func(s []tcpbalancer.Server) { report.Detail(state.BalancerDetail, s) },
	}
	if server, ok := strings.CutPrefix(cfg.Join.Server, "https://"); ok {
		o.Fallback = []string{server}
	}
	if cfg.Role == config.Server {
		o.Own, o.OwnDial = netip.AddrPortFrom(cfg.API.Advertise, cfg.API.Port).String(), cfg.API.Local().String()
	}
	return apibalancer.New(o)
}

// tunnels are the connections by which servers reach this node if they cannot dial it.
func tunnels(cfg config.Config, servers *apibalancer.Balancer, node *kube.OwnNode, report *state.Recorder) nodetunnel.Tunnels {
	pki := cfg.Dirs.NodePKI()
	return nodetunnel.Tunnels{
		Path: join.PathTunnel, CA: cfg.Dirs.NodeCA(), Cert: filepath.Join(pki, "node.crt"), Key: filepath.Join(pki, "node.key"),
		Servers: servers.Servers, Name: cfg.Node.Name, IPs: cfg.Node.IPs, ExternalIPs: cfg.Node.ExternalIPs,
		Pods:    func() []netip.Prefix { return podRanges(cfg, node) },
		Report:  func(t []state.Tunnel) { report.Detail(state.TunnelsDetail, t) },
		Removed: join.ReasonRemoved,
	}
}

// announcements gives this node the addresses that the servers vote to it.
func announcements(cfg config.Config, servers *apibalancer.Balancer, node *kube.OwnNode) announcer.Announcer {
	pki := cfg.Dirs.NodePKI()
	a := announcer.Announcer{
		Path: join.PathAddresses, Starting: join.StartingHeader, CA: cfg.Dirs.NodeCA(), Cert: filepath.Join(pki, "node.crt"), Key: filepath.Join(pki, "node.key"),
		Servers: servers.Servers, Node: node, IPs: cfg.Node.IPs,
	}
	if cfg.Role == config.Server {
		a.OwnDial, a.VIPs, a.APIPort = cfg.API.Local().String(), cfg.API.VIPs, cfg.API.Port
		if !cfg.Disabled("gateway") {
			a.Gateway = gateway.Dir(cfg.Dirs.Gateway())
		}
	}
	return a
}

// podRanges returns the ranges of the addresses of this node's pods. Another CNI plugin can use any address of the cluster.
func podRanges(cfg config.Config, node *kube.OwnNode) []netip.Prefix {
	if cfg.Network.Backend == config.BackendNone {
		return cfg.Network.ClusterCIDRs
	}
	object, _ := node.Get()
	return kube.PodCIDRs(object)
}
