// Package clusterdns has the addresses at which each node answers the DNS queries of pods. The node listens there, and the control
// plane publishes them in EndpointSlices.
package clusterdns

import (
	"net/netip"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/network/podsubnet"
)

// The Service in pods' resolv.conf and its ConfigMap, with the names that kubeadm uses.
const (
	Namespace = "kube-system"
	Service   = "kube-dns"
	ConfigMap = "coredns"  // holds the Corefile
	Key       = "Corefile" // in the ConfigMap
)

// Port is the port of every node's name server; the Service maps 53 to it. Port 53 is left to a name server of the host, which often
// listens on all addresses: with the same port, only one of the two could start.
const Port = 10053

// UserID is the user and the group of the name server's process, which have no name and own nothing. It is below 65536, so that it
// exists in containers with user namespaces too, and one that no distribution and no part of systemd assigns, see
// https://systemd.io/UIDS-GIDS.
const UserID = 60972

// Listen returns the addresses of a node's name server: the gateway of each of its pod subnets, or the node's own addresses if the pod
// network is not coracle's. It is empty while the node has no pod subnet.
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
