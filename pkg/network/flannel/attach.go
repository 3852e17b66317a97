package flannel

import (
	"context"
	"slices"
	"time"

	"github.com/flannel-io/flannel/pkg/backend"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/network/podsubnet"
)

// apiTimeout is how long a start waits for the API to return the node's subnet, before pods get addresses of the remembered subnet.
const apiTimeout = 2 * time.Second

// attachment sets up what pods are attached to, once the node's subnet is known.
type attachment struct {
	Flannel
	link       *backend.ExternalInterface
	masquerade func(podsubnet.Subnet) error
	subnets    []string // in use
}

// settle returns when pods can be attached with addresses of the Node's subnet, or ctx is done. After a reboot while no server answers
// it uses the remembered subnet before: a Node keeps its subnet as long as it exists.
func (a *attachment) settle(ctx context.Context) error {
	const what = "the controller manager to give this node a pod subnet"
	soon, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	node, err := a.Node.Await(soon, what, hasSubnet)
	if err != nil && ctx.Err() == nil {
		if err := a.useRemembered(); err != nil {
			return err
		}
		node, err = a.Node.Await(ctx, what, hasSubnet)
	}
	if err != nil {
		return nil // ctx is done
	}
	if err := a.use(node.Spec.PodCIDRs); err != nil {
		return err
	}
	return atomicfile.WriteJSON(a.MemoryFile, memory{Node: a.Node.Name, Subnets: node.Spec.PodCIDRs}, 0o644)
}

// hasSubnet reports whether the controller manager has assigned the pod CIDRs, which it does for all families at once.
func hasSubnet(n *corev1.Node) bool { return len(n.Spec.PodCIDRs) > 0 }

// use makes the bridge and writes the subnet file, unless these subnets are in use.
func (a *attachment) use(subnets []string) error {
	if slices.Equal(a.subnets, subnets) {
		return nil
	}
	s, err := a.subnet(subnets, a.link)
	if err != nil {
		return err
	}
	if err := ensureBridge(a.Bridge, s); err != nil {
		return err
	}
	if err := a.masquerade(s); err != nil {
		return err
	}
	a.subnets = subnets
	return s.Write(a.SubnetFile)
}

// memory is the content of MemoryFile.
type memory struct {
	Node    string   `json:"node"` // the subnet belongs to this Node only
	Subnets []string `json:"podCIDRs"`
}

func (a *attachment) useRemembered() error {
	subnets := a.readMemory()
	if len(subnets) == 0 {
		return nil
	}
	logrus.WithField("component", "flannel").Infof("the API does not answer yet: pods get addresses of %s, as before", subnets)
	return a.use(subnets)
}

// readMemory returns the remembered subnets of this Node, if they are within the cluster CIDRs.
func (a *attachment) readMemory() []string {
	var m memory
	if _, err := atomicfile.ReadJSON(a.MemoryFile, &m); err != nil || m.Node != a.Node.Name {
		return nil // missing, damaged, or written when the machine had another name
	}
	prefixes, err := parseSubnets(m.Subnets)
	if err != nil || len(prefixes) != len(a.ClusterCIDRs) {
		return nil
	}
	for i, p := range prefixes {
		if !a.ClusterCIDRs[i].Overlaps(p) {
			return nil
		}
	}
	return m.Subnets
}
