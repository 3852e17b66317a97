// Package nodeready follows the Ready condition of this node.
package nodeready

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"

	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// NodeReady follows the Ready condition of the own Node object.
type NodeReady struct {
	Node *kube.OwnNode
	// Since is the start of this process. A condition of an earlier time is ignored.
	Since time.Time
	// OtherNetwork is true if the user brings the CNI plugin. It may be installed through the API after the start, so a node that lacks
	// only its network counts as ready.
	OtherNetwork bool
}

// networkMissing is part of the kubelet's message about a node without a CNI configuration.
const networkMissing = "NetworkPluginNotReady"

// Run works until ctx is done. It is ready when the node becomes Ready for the first time. Later changes are logged and reported to the
// group.
func (n NodeReady) Run(ctx context.Context, ready func()) error {
	log := logrus.WithField("component", "node-ready")
	was, first := false, true
	for {
		node, changed := n.Node.Get()
		is, why := n.state(node)
		switch {
		case first && (is || n.OtherNetwork && strings.Contains(why, networkMissing)):
			ready()
			first = false
			if !is {
				log.Info("the node waits for a pod network: install a CNI plugin")
			}
		case is && !was:
			log.Info("the node is Ready again")
			lifecycle.WaitingFor(ctx, "")
		case !is && was:
			log.Warn("the node is not Ready: " + why)
		}
		if !is {
			lifecycle.WaitingFor(ctx, "the node to be Ready: "+why)
		}
		was = is
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// state returns the status of the Ready condition and the reason if it is not true.
func (n NodeReady) state(node *corev1.Node) (ready bool, why string) {
	if node == nil {
		return false, "it is not registered"
	}
	for _, c := range node.Status.Conditions {
		if c.Type != corev1.NodeReady {
			continue
		}
		if !kube.HeardOf(node, n.Since) {
			return false, "the kubelet has not said anything since its start"
		}
		if c.Status == corev1.ConditionTrue {
			return true, ""
		}
		return false, fmt.Sprintf("%s: %s", c.Reason, c.Message)
	}
	return false, "the kubelet has not said anything yet"
}
