// Package nodeaddresses sets external addresses of Nodes, which kubelets cannot know. A kubelet writes all addresses of its Node itself,
// unless it runs with --cloud-provider=external. Then it leaves them to a controller and marks the node as uninitialized. Publisher, on
// the node, writes the desired external addresses into an annotation; Addresses, in the control plane, is the controller. Nodes without
// the annotation, such as those of another cloud's controller, are left alone.
package nodeaddresses

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	cloudprovider "k8s.io/cloud-provider/api"

	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// Addresses sets the addresses of all nodes with the annotation.
type Addresses struct {
	// Kubeconfig is allowed to list, watch and patch Nodes and their status.
	Kubeconfig string
	// Reserved are the CIDRs of Services and pods, which cannot contain addresses of nodes.
	Reserved []netip.Prefix
}

// Run works until ctx is done. It is ready at once, because no other part needs external addresses.
func (a Addresses) Run(ctx context.Context, ready func()) error {
	client, err := kube.Client(a.Kubeconfig)
	if err != nil {
		return err
	}
	ready()
	a.run(kube.WithComponent(ctx, "node-addresses"), client,
		cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "nodes", "", fields.Everything()))
	return nil
}

func (a Addresses) run(ctx context.Context, client kubernetes.Interface, nodes cache.ListerWatcher) {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](200*time.Millisecond, 30*time.Second))
	enqueue := func(obj any) {
		if node, ok := obj.(*corev1.Node); ok && node.Annotations[kube.ExternalIPAnnotation] != "" {
			queue.Add(node.Name)
		}
	}
	store, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: nodes,
		ObjectType:    &corev1.Node{},
		Transform:     trim,
		Handler:       cache.ResourceEventHandlerFuncs{AddFunc: enqueue, UpdateFunc: func(_, obj any) { enqueue(obj) }},
	})
	var working sync.WaitGroup
	working.Go(func() {
		kube.Work(ctx, "node-addresses", queue, func(ctx context.Context, name string) error { return a.handle(ctx, client, store, name) })
	})
	controller.RunWithContext(ctx)
	queue.ShutDown()
	working.Wait()
}

// handle patches one node. A conflict is not an error, because the change that caused it will be handled next.
func (a Addresses) handle(ctx context.Context, client kubernetes.Interface, store cache.Store, name string) error {
	obj, exists, err := store.GetByKey(name)
	node, ok := obj.(*corev1.Node)
	if err != nil || !exists || !ok {
		return err
	}
	p, wrong := a.plan(node)
	if wrong != nil {
		logrus.WithField("component", "node-addresses").WithField("node", name).Warnf("ignoring annotation %s: %v", kube.ExternalIPAnnotation, wrong)
	}
	if p.addresses != nil { // the taint is removed at the event of this change
		body := map[string]any{"status": map[string]any{"addresses": p.addresses}}
		if err := patch(ctx, client, name, body, "status"); err != nil {
			return fmt.Errorf("setting the addresses of node %s: %w", name, err)
		}
		return nil
	}
	if !p.untaint {
		return nil
	}
	body := map[string]any{
		"metadata": map[string]any{"resourceVersion": node.ResourceVersion}, // the list is replaced as a whole
		"spec":     map[string]any{"taints": p.taints},
	}
	if err := patch(ctx, client, name, body); err != nil {
		return fmt.Errorf("removing taint %s of node %s: %w", cloudprovider.TaintExternalCloudProvider, name, err)
	}
	return nil
}

func patch(ctx context.Context, client kubernetes.Interface, name string, body map[string]any, sub ...string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	_, err = client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, data, metav1.PatchOptions{FieldManager: "coracle"}, sub...)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// trim drops the fields of a Node that plan does not read, to save memory.
func trim(obj any) (any, error) {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil
	}
	slim := &corev1.Node{}
	slim.Name, slim.ResourceVersion = node.Name, node.ResourceVersion
	if node.Annotations[kube.ExternalIPAnnotation] == "" {
		return slim, nil
	}
	slim.Annotations = map[string]string{kube.ExternalIPAnnotation: node.Annotations[kube.ExternalIPAnnotation]}
	if internal, ok := node.Annotations[cloudprovider.AnnotationAlphaProvidedIPAddr]; ok {
		slim.Annotations[cloudprovider.AnnotationAlphaProvidedIPAddr] = internal
	}
	slim.Spec.Taints, slim.Status.Addresses = node.Spec.Taints, node.Status.Addresses
	return slim, nil
}
