// Package noderoles labels a server's node as part of the control plane, which a kubelet may not do itself.
package noderoles

import (
	"context"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-dev/coracle/pkg/kube"
)

// label is what kubectl shows under ROLES.
const label = "node-role.kubernetes.io/control-plane"

// NodeRoles keeps the label on one node.
type NodeRoles struct {
	// Kubeconfig may get, watch and patch nodes.
	Kubeconfig string
	// Node is the server's own.
	Node string
}

// Run labels the node when it appears, and again if the label is lost, until ctx is done. It is ready at once: the
// node appears when the kubelet registers it, which nobody here waits for.
func (n NodeRoles) Run(ctx context.Context, ready func()) error {
	client, err := kube.Client(n.Kubeconfig)
	if err != nil {
		return err
	}
	check := func(obj any) {
		node, err := meta.Accessor(obj)
		if err != nil || node.GetLabels()[label] == "true" {
			return
		}
		if err := n.put(ctx, client); err != nil && ctx.Err() == nil {
			logrus.WithField("component", "node-roles").WithError(err).Warn("trying again at the node's next change")
		}
	}
	_, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "nodes", "",
			fields.OneTermEqualSelector("metadata.name", n.Node)),
		ObjectType: &corev1.Node{},
		Transform:  onlyLabels,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    check,
			UpdateFunc: func(_, obj any) { check(obj) },
		},
	})
	ready()
	controller.RunWithContext(kube.WithComponent(ctx, "node-roles"))
	return nil
}

func (n NodeRoles) put(ctx context.Context, client kubernetes.Interface) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:"true"}}}`, label)
	_, err := client.CoreV1().Nodes().Patch(ctx, n.Node, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "coracle"})
	if err != nil {
		return fmt.Errorf("labelling node %s: %w", n.Node, err)
	}
	return nil
}

// onlyLabels keeps what check reads.
func onlyLabels(obj any) (any, error) {
	if node, ok := obj.(*corev1.Node); ok {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name, ResourceVersion: node.ResourceVersion, Labels: node.Labels}}, nil
	}
	return obj, nil
}
