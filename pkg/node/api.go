package node

import (
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/network/apibalancer"
	"github.com/coracle-dev/coracle/pkg/network/nodetunnel"
	"github.com/coracle-dev/coracle/pkg/network/tcpbalancer"
)

// apiBalancer is the connection of this node to the API.
func apiBalancer(cfg config.Config, gate *kube.APIGate, report *state.Recorder) *apibalancer.Balancer {
	o := apibalancer.Options{
		Listen:  apiAddress(cfg),
		Servers: slices.Clone(cfg.Join.Servers), File: cfg.Dirs.Servers(),
		Kubeconfig: cfg.Dirs.NodeConfig("node.kubeconfig"), APIReady: gate.Opened(), CA: cfg.Dirs.NodeCA(),
		Report: func(s []tcpbalancer.Server) { report.Detail(state.BalancerDetail, s) },
	}
	if server, ok := strings.CutPrefix(cfg.Join.Server, "https://"); ok {
		o.Fallback = []string{server}
	}
	if cfg.Role == config.Server {
		o.Own, o.OwnDial = hostPort(cfg.API.Advertise, cfg.API.Port), ownAPI(cfg.API)
	}
	return apibalancer.New(o)
}

// tunnels are the connections by which servers reach this node if they cannot dial it.
func tunnels(cfg config.Config, servers *apibalancer.Balancer, node *kube.OwnNode, report *state.Recorder) nodetunnel.Tunnels {
	pki := cfg.Dirs.NodePKI()
	return nodetunnel.Tunnels{
		Path: join.PathTunnel, CA: cfg.Dirs.NodeCA(), Cert: filepath.Join(pki, "node.crt"), Key: filepath.Join(pki, "node.key"),
		Servers: servers.Servers, Name: cfg.Node.Name, IPs: cfg.Node.IPs, ExternalIPs: cfg.Node.ExternalIPs,
		Pods:   func() []netip.Prefix { return podRanges(cfg, node) },
		Report: func(t []state.Tunnel) { report.Detail(state.TunnelsDetail, t) },
	}
}

// podRanges returns the ranges of the addresses of this node's pods. Another CNI plugin can use any address of the cluster.
func podRanges(cfg config.Config, node *kube.OwnNode) (ranges []netip.Prefix) {
	if cfg.Network.Backend == config.BackendNone {
		return cfg.Network.ClusterCIDRs
	}
	object, _ := node.Get()
	if object == nil {
		return nil
	}
	for _, text := range object.Spec.PodCIDRs {
		if cidr, err := netip.ParsePrefix(text); err == nil {
			ranges = append(ranges, cidr)
		}
	}
	return ranges
}

// ownAPI returns the address on which this machine's own server listens.
func ownAPI(api config.API) string {
	switch {
	case !api.Bind.IsValid() || api.Bind == netip.IPv4Unspecified():
		return hostPort(netip.AddrFrom4([4]byte{127, 0, 0, 1}), api.Port)
	case api.Bind.IsUnspecified():
		return hostPort(netip.IPv6Loopback(), api.Port)
	}
	return hostPort(api.Bind, api.Port)
}

func hostPort(ip netip.Addr, port uint16) string {
	return net.JoinHostPort(ip.String(), strconv.Itoa(int(port)))
}

// apiAddress returns the address at which the components of this node reach the API of any server.
func apiAddress(cfg config.Config) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(int(cfg.Node.BalancerPort)))
}
