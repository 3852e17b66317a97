// Package noderoles is what a server's control plane does about the Node object of its own machine: it labels it as
// part of the control plane, which a kubelet may not do itself, notes there how its API is called, and deletes the Node that the machine was when it
// had another name.
package noderoles

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// label is what kubectl shows under ROLES.
const label = "node-role.kubernetes.io/control-plane"

// Roles keeps the label and the names on the own node, and remembers which Node object is the machine's.
type Roles struct {
	// Kubeconfig may get, watch and patch nodes.
	Kubeconfig string
	// Node is the server's own.
	Node string
	// Names are further names and addresses of this server's API: no other node may have a certificate for them.
	Names []string
	// Mine is an error if another machine has claimed the node's name: its Node gets no label, which means trust. Nil is
	// for where nobody can.
	Mine func(ctx context.Context) error
	// Memory outlives a restart.
	Memory *Memory
}

// Run labels the node when it appears, and again if the label is lost, until ctx is done. It is ready at once: the
// node appears when the kubelet registers it, which nobody here waits for.
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
		if err := r.care(ctx, client, node); err != nil && ctx.Err() == nil {
			logrus.WithField("component", "node-roles").WithError(err).Warn("trying again at the node's next change")
		}
	}
	_, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "nodes", "",
			fields.OneTermEqualSelector("metadata.name", r.Node)),
		ObjectType: &corev1.Node{},
		Transform:  trim,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    check,
			UpdateFunc: func(_, obj any) { check(obj) },
		},
	})
	ready()
	controller.RunWithContext(kube.WithComponent(ctx, "node-roles"))
	return nil
}

func (r Roles) care(ctx context.Context, client kubernetes.Interface, node *corev1.Node) error {
	names := strings.Join(r.Names, ",")
	said := node.Labels[label] == "true" && node.Annotations[kube.APINamesAnnotation] == names
	if said && r.Memory.knows(node.Name, node.UID) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if r.Mine != nil {
		if err := r.Mine(ctx); err != nil {
			return err
		}
	}
	if err := r.Memory.add(node.Name, node.UID); err != nil || said {
		return err
	}
	return r.say(ctx, client, node, names)
}

// say writes the label and the names into the Node.
func (r Roles) say(ctx context.Context, client kubernetes.Interface, node *corev1.Node, names string) error {
	annotations := map[string]any{kube.APINamesAnnotation: nil} // removes it
	if names != "" {
		annotations[kube.APINamesAnnotation] = names
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]string{label: "true"}, "annotations": annotations}})
	if err != nil {
		return err
	}
	_, err = client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "coracle"})
	if err != nil {
		return fmt.Errorf("labelling node %s: %w", node.Name, err)
	}
	return nil
}

// trim keeps what care reads.
func trim(obj any) (any, error) {
	if node, ok := obj.(*corev1.Node); ok {
		slim := &corev1.Node{}
		slim.Name, slim.UID, slim.ResourceVersion = node.Name, node.UID, node.ResourceVersion
		slim.Labels, slim.Annotations = node.Labels, node.Annotations
		return slim, nil
	}
	return obj, nil
}
