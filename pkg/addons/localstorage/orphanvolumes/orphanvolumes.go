// Package orphanvolumes looks after local volumes whose node is gone: nobody is left there to do it. What the API knows
// of such a volume is removed if its folder was to be; a claim that waits for a volume on such a node is given back to
// the scheduler. One server at a time does it.
package orphanvolumes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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

	"github.com/coracle-dev/coracle/pkg/addons/localstorage/localpath"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

const (
	component = "local-volumes"
	// patience is how long a node that does not answer is waited for before claims go elsewhere.
	patience = time.Minute
	// everything stands for all nodes that are gone.
	everything = ""
)

// Care is the component.
type Care struct {
	// Kubeconfig may watch nodes; watch, patch and delete volumes; list and update claims; and create events.
	Kubeconfig string
}

// Run works until ctx is done. It is ready at once: nobody waits for it.
func (c Care) Run(ctx context.Context, ready func()) error {
	client, err := kube.Client(c.Kubeconfig)
	if err != nil {
		return err
	}
	ready()
	api := client.CoreV1().RESTClient()
	ours := func(o *metav1.ListOptions) { o.LabelSelector = localpath.NodeLabel }
	run(kube.WithComponent(ctx, component), client, cache.NewListWatchFromClient(api, "nodes", "", fields.Everything()),
		cache.NewFilteredListWatchFromClient(api, "persistentvolumes", "", ours))
	return nil
}

// keeper does the work for one node after the other.
type keeper struct {
	client kubernetes.Interface
	nodes  cache.Store
}

func run(ctx context.Context, client kubernetes.Interface, nodes, volumes cache.ListerWatcher) {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Minute))
	dead := func(obj any) {
		if node, ok := obj.(*corev1.Node); ok && unreachable(node) {
			queue.AddAfter(node.Name, time.Until(since(node).Add(patience)))
		}
	}
	known, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: nodes, ObjectType: &corev1.Node{}, Transform: trim,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    dead,
			UpdateFunc: func(_, obj any) { dead(obj) },
			DeleteFunc: func(obj any) {
				if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
					queue.Add(name)
				}
			},
		},
	})
	k := keeper{client, known}
	_, releases := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: volumes, ObjectType: &corev1.PersistentVolume{}, Transform: trim,
		Handler: cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, obj any) { // what was there before has its turn with everything
			if pv, ok := obj.(*corev1.PersistentVolume); ok && wasToGo(pv) {
				queue.Add(pv.Labels[localpath.NodeLabel])
			}
		}},
	})
	var working sync.WaitGroup
	working.Go(func() { releases.RunWithContext(ctx) })
	working.Go(func() {
		if !cache.WaitForCacheSync(ctx.Done(), controller.HasSynced) {
			return
		}
		queue.Add(everything)
		kube.Work(ctx, component, queue, k.handle)
	})
	controller.RunWithContext(ctx)
	queue.ShutDown()
	working.Wait()
}

// handle does what is to be done for a node that is gone or dead, or for all that are gone.
func (k keeper) handle(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if name == everything {
		return k.each(ctx, localpath.NodeLabel, k.gone)
	}
	if k.gone(name) {
		return k.each(ctx, labelIs(name), k.gone)
	}
	if obj, _, err := k.nodes.GetByKey(name); err == nil {
		if node, ok := obj.(*corev1.Node); ok && unreachable(node) {
			return k.claims(ctx, func(node string) bool { return node == name })
		}
	}
	return nil // it has come back
}

// gone reports whether there is no such node.
func (k keeper) gone(name string) bool {
	_, exists, err := k.nodes.GetByKey(name)
	return err == nil && !exists
}

func labelIs(node string) string { return localpath.NodeLabel + "=" + node }

// each goes through volumes and claims of nodes that are gone. One that cannot be dealt with keeps none of the others.
func (k keeper) each(ctx context.Context, selector string, gone func(node string) bool) error {
	list, err := k.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return fmt.Errorf("listing local volumes: %w", err)
	}
	var errs []error
	for i := range list.Items {
		pv := &list.Items[i]
		if gone(pv.Labels[localpath.NodeLabel]) && wasToGo(pv) {
			errs = append(errs, k.forget(ctx, pv))
		}
	}
	return errors.Join(append(errs, k.claims(ctx, gone))...)
}

// wasToGo reports whether a volume waits for nothing but its folder to be removed. One that a claim has stays: its
// machine may come back with the folder.
func wasToGo(pv *corev1.PersistentVolume) bool {
	return pv.Annotations[localpath.ProvisionedBy] == localpath.Provisioner && pv.Status.Phase == corev1.VolumeReleased &&
		pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete
}

// forget removes a volume from the API. Its folder is left where it was.
func (k keeper) forget(ctx context.Context, pv *corev1.PersistentVolume) error {
	rest := slices.DeleteFunc(slices.Clone(pv.Finalizers), func(f string) bool { return f == localpath.VolumeFinalizer })
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": pv.ResourceVersion, "finalizers": rest}})
	if err != nil {
		return err
	}
	volumes := k.client.CoreV1().PersistentVolumes()
	_, err = volumes.Patch(ctx, pv.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: "coracle"})
	if err == nil {
		err = volumes.Delete(ctx, pv.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pv.UID))})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("removing volume %s: %w", pv.Name, err)
	}
	node := pv.Labels[localpath.NodeLabel]
	logrus.WithField("component", component).Warnf("removed volume %s: node %s is gone, and its folder %s is left there", pv.Name, node, kube.VolumePath(pv))
	return nil
}

// claims gives back the claims that wait for volumes of some nodes. The scheduler would wait for those nodes for ever.
// If such a node has written the volume before that, the volume wins, and says where it is; afterwards the API refuses it.
func (k keeper) claims(ctx context.Context, of func(node string) bool) error {
	list, err := k.client.CoreV1().PersistentVolumeClaims(metav1.NamespaceAll).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return fmt.Errorf("listing claims: %w", err)
	}
	var errs []error
	for i := range list.Items {
		claim := &list.Items[i]
		node, waits := claim.Annotations[localpath.SelectedNode]
		if !waits || claim.Annotations[localpath.ProvisionerOf] != localpath.Provisioner || claim.Spec.VolumeName != "" || !of(node) {
			continue
		}
		claim = claim.DeepCopy()
		delete(claim.Annotations, localpath.SelectedNode)
		_, err := k.client.CoreV1().PersistentVolumeClaims(claim.Namespace).Update(ctx, claim, metav1.UpdateOptions{FieldManager: "coracle"})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("giving back claim %s/%s: %w", claim.Namespace, claim.Name, err))
			continue
		}
		logrus.WithField("component", component).Warnf("claim %s/%s goes to another node: %s is gone or does not answer", claim.Namespace, claim.Name, node)
	}
	return errors.Join(errs...)
}

// unreachable reports whether the node has been given up on.
func unreachable(node *corev1.Node) bool { return !since(node).IsZero() }

// since is when the node was given up on.
func since(node *corev1.Node) time.Time {
	for _, t := range node.Spec.Taints {
		if t.Key == corev1.TaintNodeUnreachable && t.Effect == corev1.TaintEffectNoExecute && t.TimeAdded != nil {
			return t.TimeAdded.Time
		}
	}
	return time.Time{}
}

// trim leaves of an object what is read here: there may be thousands.
func trim(obj any) (any, error) {
	switch o := obj.(type) {
	case *corev1.Node:
		slim := &corev1.Node{}
		slim.Name, slim.ResourceVersion, slim.Spec.Taints = o.Name, o.ResourceVersion, o.Spec.Taints
		return slim, nil
	case *corev1.PersistentVolume:
		o.ManagedFields = nil
	}
	return obj, nil
}
