// Package nodeadmission is an admission plugin of the API server for what nodes write about themselves: upstream's NodeRestriction limits
// a node to its own Node object, and this plugin to what others do not rely on, or what the control plane can verify.
package nodeadmission

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kubernetes/pkg/apis/core"

	"github.com/coracle-dev/coracle/pkg/cluster/pki"
)

// Name is the plugin's name, for --disable-admission-plugins.
const Name = "CoracleNodes"

// kubeletUser is the prefix of a kubelet's user name. The node's name follows.
const kubeletUser = "system:node:"

// Plugin restricts what nodes write. Without it, root on one node could take the place of others.
type Plugin struct{ *admission.Handler }

// New returns the plugin.
func New() *Plugin {
	return &Plugin{Handler: admission.NewHandler(admission.Create, admission.Update)}
}

// Validate refuses what a node must not write.
func (p *Plugin) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if nodeOf(a.GetUserInfo().GetName()) == "" || a.GetResource().GroupResource() != core.Resource("nodes") {
		return nil
	}
	node, ok := a.GetObject().(*core.Node)
	if !ok {
		return nil // a connection to the kubelet
	}
	var err error
	if a.GetOperation() == admission.Create {
		err = checkNew(node)
	} else if old, ok := a.GetOldObject().(*core.Node); ok {
		err = checkChange(old, node, a.GetSubresource())
	}
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	return nil
}

// nodeOf returns the node name of a kubelet, or of coracle's part on a node; "" for other users.
func nodeOf(user string) string {
	for _, prefix := range []string{kubeletUser, pki.NodeUser} {
		if name, ok := strings.CutPrefix(user, prefix); ok {
			return name
		}
	}
	return ""
}

// checkNew checks the Node that a kubelet registers.
func checkNew(node *core.Node) error {
	if len(node.Spec.PodCIDRs) > 0 {
		return errors.New("the control plane assigns spec.podCIDR; a node cannot choose it")
	}
	return checkMeta(nil, node)
}

// checkChange checks a change of a Node by itself. A change of the status does not change the spec.
func checkChange(old, node *core.Node, subresource string) error {
	if subresource == "" && !equality.Semantic.DeepEqual(old.Spec, node.Spec) {
		return errors.New("a node cannot change its own spec, such as podCIDR, taints and unschedulable: an administrator can, with kubectl")
	}
	return checkMeta(old.Finalizers, node)
}

func checkMeta(finalizers []string, node *core.Node) error {
	if !equality.Semantic.DeepEqual(finalizers, node.Finalizers) {
		return fmt.Errorf("a node cannot set finalizers on itself: nobody could remove node %s", node.Name)
	}
	return nil
}
