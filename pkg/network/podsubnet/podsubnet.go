// Package podsubnet is the file by which a node's pod network is known on its own machine: package flannel writes it, and
// the CNI plugin, the name server and the diagnosis read it.
package podsubnet

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

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
	data, err := os.ReadFile(path)
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("reading %s: %w", path, err)
	}
	if len(s.PodCIDRs) == 0 {
		return s, fmt.Errorf("reading %s: it names no pod subnet", path)
	}
	return s, nil
}

// Write writes the file unless it has the same content: the CNI plugin watches it.
func (s Subnet) Write(path string) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if _, err := atomicfile.WriteIfChanged(path, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("writing the node's pod subnet: %w", err)
	}
	return nil
}

// Gateway is the node's own address in one of its pod subnets, the first one, with the length of the subnet.
func Gateway(podCIDR netip.Prefix) netip.Prefix {
	return netip.PrefixFrom(podCIDR.Masked().Addr().Next(), podCIDR.Bits())
}
