package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/coracle-dev/coracle/manifests"
	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/network/clusterdns"
	"github.com/coracle-dev/coracle/pkg/network/coredns"
	"github.com/coracle-dev/coracle/pkg/network/podsubnet"
)

// nameServer is the DNS server for the pods of this node, which are attached to network.
func nameServer(cfg config.Config, node *kube.OwnNode, network *lifecycle.Unit, report *state.Recorder) (coredns.DNS, error) {
	corefile, err := manifests.Corefile(cfg.Network)
	if err != nil {
		return coredns.DNS{}, err
	}
	return coredns.DNS{
		Listen:     func(ctx context.Context) ([]netip.AddrPort, error) { return dnsAddresses(ctx, cfg, node, network) },
		Before:     func() []netip.AddrPort { return dnsBefore(cfg) },
		Kubeconfig: cfg.Dirs.NodeConfig("node.kubeconfig"), Node: cfg.Node.Name,
		Dir: cfg.Dirs.NameServer(), Log: cfg.Log, Default: corefile, Cache: cfg.Dirs.NodeConfig("Corefile"),
		ResolvConf: cfg.Node.ResolvConf, ServiceIPs: cfg.Network.DNS, Proxied: !cfg.Disabled("kube-proxy"),
		Domain: cfg.Network.Domain, APIServer: cfg.Network.ServiceCIDRs[0].Masked().Addr().Next(),
		Report: func(s clusterdns.Status) { report.Detail(clusterdns.ReportKey, s) },
	}, nil
}

// dnsAddresses waits for the pod network and returns the addresses on which the DNS server listens.
func dnsAddresses(ctx context.Context, cfg config.Config, node *kube.OwnNode, network *lifecycle.Unit) ([]netip.AddrPort, error) {
	lifecycle.WaitingFor(ctx, "the pod network")
	defer lifecycle.WaitingFor(ctx, "")
	select {
	case <-network.Ready():
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	var listen []netip.AddrPort
	_, err := node.Await(ctx, "the node's pod subnet", func(n *corev1.Node) bool {
		listen = clusterdns.Listen(cfg.Network.Backend, kube.PodCIDRs(n), cfg.Node.IPs)
		return len(listen) >= len(cfg.Network.ClusterCIDRs)
	})
	return listen, err
}

// dnsBefore returns the addresses on which the DNS server of an earlier process listened, if this machine still has them.
func dnsBefore(cfg config.Config) []netip.AddrPort {
	subnet, _ := podsubnet.Read(cfg.Dirs.Subnet()) // without a file it listened nowhere
	own, _ := net.InterfaceAddrs()
	listen := clusterdns.Listen(cfg.Network.Backend, subnet.PodCIDRs, cfg.Node.IPs)
	for _, l := range listen {
		if !slices.ContainsFunc(own, func(a net.Addr) bool {
			prefix, err := netip.ParsePrefix(a.String())
			return err == nil && prefix.Addr() == l.Addr()
		}) {
			return nil
		}
	}
	return listen
}

// podResolvConf returns the file from which the kubelet takes the name servers of pods that use the host's. It is the host's
// own file unless that is missing, or lists only loopback addresses (Docker's 127.0.0.11, a dnsmasq), which do not work
// inside a pod. Then the pods use the cluster's DNS, which runs on the host and can query those name servers.
func podResolvConf(cfg config.Config) (string, error) {
	host := cfg.Node.ResolvConf
	data, err := os.ReadFile(host)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("reading the host's name servers: %w", err)
	}
	missing := err != nil
	if !missing && (!config.LoopbackOnly(data) || cfg.Disabled("dns")) {
		return host, nil
	}
	file := cfg.Dirs.NodeConfig("resolv.conf")
	var servers []netip.Addr
	if !cfg.Disabled("dns") {
		servers = cfg.Network.DNS
	}
	return file, atomicfile.Write(file, withServers(data, servers), 0o600)
}

// withServers replaces the name servers in a resolv.conf and keeps search domains and options.
func withServers(data []byte, servers []netip.Addr) []byte {
	var b bytes.Buffer
	for _, s := range servers {
		fmt.Fprintf(&b, "nameserver %s\n", s)
	}
	for line := range strings.Lines(string(data)) {
		switch fields := strings.Fields(line); {
		case len(fields) < 2:
		case fields[0] == "search", fields[0] == "domain", fields[0] == "options":
			b.WriteString(strings.Join(fields, " ") + "\n")
		}
	}
	return b.Bytes()
}
