// Package noderoles maintains the Node of a server's own machine: it sets the label of the control plane, which a kubelet must not set
// itself, and an annotation with the names of the server's API, and deletes the Nodes that the machine had under other names.
package noderoles

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// Roles sets the label and the annotation of the own Node, and records the Node in Memory.
type Roles struct {
	// Kubeconfig is allowed to get, watch and patch Nodes.
	Kubeconfig string
	// Node is the server's node name.
	Node string
	// Names are further names and addresses of this server's API. No other node can get a certificate for them.
	Names []string
	// Mine returns an error if another machine has claimed the node name. Then the Node does not get the label, which other parts trust.
	// Nil means that no other machine can.
	Mine func(ctx context.Context) error
	// Memory records the Nodes of this machine.
	Memory *Memory
}

// Run sets label and annotation whenever they are missing, until ctx is done. It is ready at once, because the Node appears only when the
// kubelet registers it.
func (r Roles) Run(ctx context.Context, ready func()) error {
	client, err := kube.Client(r.Kubeconfig)
	if err != nil {
		return err
	}
	check := func(obj any) {
		node, ok := obj.(*corev1.Node)
		if !ok {
			return
		}
		if err := r.ensure(ctx, client, node); err != nil && ctx.Err() == nil {
			logrus.WithField("component", "node-roles").WithError(err).Warn("trying again at the node's next change")
		}
	}
	_, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "nodes", "",
			fields.OneTermEqualSelector("metadata.name", r.Node)),
		ObjectType: &corev1.Node{},
		Transform:  kube.Trim(trim),
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    check,
			UpdateFunc: func(_, obj any) { check(obj) },
		},
	})
	ready()
	controller.RunWithContext(kube.WithComponent(ctx, "node-roles"))
	return nil
}

// ensure sets the label and the annotation, and records the Node, unless that was done.
func (r Roles) ensure(ctx context.Context, client kubernetes.Interface, node *corev1.Node) error {
	names := strings.Join(r.Names, ",")
	done := kube.IsServer(node) && node.Annotations[kube.APINamesAnnotation] == names
	if done && r.Memory.knows(node.Name, node.UID) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if r.Mine != nil {
		if err := r.Mine(ctx); err != nil {
			return err
		}
	}
	if err := r.Memory.add(node.Name, node.UID); err != nil || done {
		return err
	}
	return r.patch(ctx, client, node, names)
}

// patch writes the label and the annotation, or removes the annotation.
func (r Roles) patch(ctx context.Context, client kubernetes.Interface, node *corev1.Node, names string) error {
	annotations := map[string]any{kube.APINamesAnnotation: nil}
	if names != "" {
		annotations[kube.APINamesAnnotation] = names
	}
	labels := map[string]string{kube.ControlPlaneLabel: "true"}
	body := map[string]any{"metadata": map[string]any{"labels": labels, "annotations": annotations}}
	if err := kube.PatchNode(ctx, client, node.Name, body); err != nil {
		return fmt.Errorf("labelling node %s: %w", node.Name, err)
	}
	return nil
}

// trim keeps only what is read here.
func trim(full, small *corev1.Node) { small.Labels, small.Annotations = full.Labels, full.Annotations }
