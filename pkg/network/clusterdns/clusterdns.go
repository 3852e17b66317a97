// Package clusterdns says where each node answers DNS queries of pods. The node half listens there and the control
// plane publishes it in an EndpointSlice: both ask this package.
package clusterdns

import (
	"net/netip"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/network/podsubnet"
)

// The Service that pods' resolv.conf points to, under the names that kubeadm gave it.
const (
	Namespace = "kube-system"
	Service   = "kube-dns"
	ConfigMap = "coredns"  // holds the Corefile
	Key       = "Corefile" // in the ConfigMap
)

// Port is where every node's DNS listens; the Service maps 53 to it. Port 53 itself is left to the host: a name server
// there often takes it on all addresses, and would not start any more, or keep ours from starting.
const Port = 10053

// Listen returns where a node's DNS listens: on the gateway of each of its pod networks, or on its own addresses if
// the pod network is not coracle's. Without pod networks yet it is empty.
func Listen(backend config.Backend, podCIDRs []netip.Prefix, nodeIPs []netip.Addr) []netip.AddrPort {
	addrs := nodeIPs
	if backend != config.BackendNone {
		addrs = nil
		for _, cidr := range podCIDRs {
			addrs = append(addrs, podsubnet.Gateway(cidr).Addr())
		}
	}
	out := make([]netip.AddrPort, 0, len(addrs))
	for _, addr := range addrs {
		out = append(out, netip.AddrPortFrom(addr, Port))
	}
	return out
}
