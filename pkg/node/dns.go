package node

import (
	"context"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/coracle-dev/coracle/manifests"
	"github.com/coracle-dev/coracle/pkg/clusterdns"
	"github.com/coracle-dev/coracle/pkg/components/dns"
	"github.com/coracle-dev/coracle/pkg/config"
	"github.com/coracle-dev/coracle/pkg/kube"
	"github.com/coracle-dev/coracle/pkg/state"
)

// nameServer is DNS for the pods of this node.
func nameServer(cfg config.Config, node *kube.OwnNode, report *state.Recorder) (dns.DNS, error) {
	corefile, err := manifests.Corefile(cfg.Network)
	if err != nil {
		return dns.DNS{}, err
	}
	return dns.DNS{
		Listen:     dnsAddresses(cfg, node),
		Kubeconfig: cfg.Dirs.NodeConfig("node.kubeconfig"), Node: cfg.Node.Name,
		Default: corefile, Cache: cfg.Dirs.NodeConfig("Corefile"),
		ResolvConf: cfg.Node.ResolvConf, ServiceIPs: cfg.Network.DNS,
		Domain: cfg.Network.Domain, APIServer: cfg.Network.ServiceCIDRs[0].Masked().Addr().Next(),
		Report: func(s state.DNS) { report.Detail(state.DNSDetail, s) },
	}, nil
}

// dnsAddresses waits for the node's pod network, if that decides.
func dnsAddresses(cfg config.Config, node *kube.OwnNode) func(context.Context) ([]netip.AddrPort, error) {
	return func(ctx context.Context) ([]netip.AddrPort, error) {
		var listen []netip.AddrPort
		_, err := node.Await(ctx, "the controller manager to give this node a pod subnet", func(n *corev1.Node) bool {
			var cidrs []netip.Prefix
			for _, text := range n.Spec.PodCIDRs {
				if cidr, err := netip.ParsePrefix(text); err == nil {
					cidrs = append(cidrs, cidr)
				}
			}
			listen = clusterdns.Listen(cfg.Network.Backend, cidrs, cfg.Node.IPs)
			return len(listen) >= len(cfg.Network.ClusterCIDRs)
		})
		return listen, err
	}
}
