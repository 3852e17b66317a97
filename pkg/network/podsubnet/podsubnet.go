// Package podsubnet is the file by which a node's pod network is known on its own machine: package flannel writes it, and
// the CNI plugin, the name server and the diagnosis read it.
package podsubnet

import (
	"fmt"
	"io/fs"
	"net/netip"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
)

// Subnet is a node's part of the pod network.
type Subnet struct {
	PodCIDRs     []netip.Prefix `json:"podCIDRs"`     // the node's own, one of each family
	MTU          int            `json:"mtu"`          // of the pods' interfaces, in bytes
	ClusterCIDRs []netip.Prefix `json:"clusterCIDRs"` // of all nodes
}

// Read reads the file. The error wraps fs.ErrNotExist while the node has no subnet.
func Read(path string) (s Subnet, err error) {
	found, err := atomicfile.ReadJSON(path, &s)
	switch {
	case err != nil:
		return s, err
	case !found:
		return s, &fs.PathError{Op: "reading", Path: path, Err: fs.ErrNotExist}
	case len(s.PodCIDRs) == 0:
		return s, fmt.Errorf("reading %s: it names no pod subnet", path)
	}
	return s, nil
}

// Write writes the file unless it has the same content: the CNI plugin watches it.
func (s Subnet) Write(path string) error { return atomicfile.WriteJSON(path, s, 0o644) }

// Gateway is the node's own address in one of its pod subnets, the first one, with the length of the subnet.
func Gateway(podCIDR netip.Prefix) netip.Prefix {
	return netip.PrefixFrom(podCIDR.Masked().Addr().Next(), podCIDR.Bits())
}
