package localstorage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/coracle-dev/coracle/pkg/addons/localstorage/localpath"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

const (
	orphansComponent = "local-volumes"
	// unreachableTimeout is how long a node may be unreachable before the claims that wait for it go to another node.
	unreachableTimeout = time.Minute
)

// Orphans is the component of the control plane that looks after local volumes whose node is gone. It removes such a
// volume from the API if its directory was to be deleted, and gives claims that wait for a volume on such a node back to
// the scheduler. It runs on one server at a time.
type Orphans struct {
	// Kubeconfig may watch nodes; watch, patch and delete volumes; list and update claims; and create events.
	Kubeconfig string
}

// Run works until ctx is done. It is ready at once, because no other component depends on it.
func (o Orphans) Run(ctx context.Context, ready func()) error {
	client, err := kube.FencedClient(ctx, o.Kubeconfig)
	if err != nil {
		return err
	}
	ready()
	watchOrphans(kube.WithComponent(ctx, orphansComponent), client)
	return nil
}

// orphanCare handles the volumes and claims of nodes that are gone.
type orphanCare struct {
	client kubernetes.Interface
	nodes  cache.Store
}

// watchOrphans looks after orphans at the start, and whenever a node goes away or has been unreachable for
// unreachableTimeout, or a volume is released, until ctx is done.
func watchOrphans(ctx context.Context, client kubernetes.Interface) {
	nodes := coreinformers.NewNodeInformer(client, 0, nil)
	withNode := func(o *metav1.ListOptions) { o.LabelSelector = localpath.NodeLabel }
	volumes := coreinformers.NewFilteredPersistentVolumeInformer(client, 0, nil, withNode)
	c := orphanCare{client, nodes.GetStore()}
	const all = "all" // the only item in the queue
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Minute))
	changed := func(obj any) {
		switch o := obj.(type) {
		case *corev1.Node:
			if since := unreachableSince(o); !since.IsZero() {
				queue.AddAfter(all, time.Until(since.Add(unreachableTimeout)))
			}
		case *corev1.PersistentVolume:
			if isReleased(o) {
				queue.Add(all)
			}
		}
	}
	// Both fail only after the informer is started.
	_ = nodes.SetTransform(kube.Trim(func(full, small *corev1.Node) { small.Spec.Taints = full.Spec.Taints }))
	_ = volumes.SetTransform(kube.DropManagedFields)
	var working sync.WaitGroup
	for _, informer := range []cache.SharedIndexInformer{nodes, volumes} {
		_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: changed, UpdateFunc: func(_, obj any) { changed(obj) }, DeleteFunc: func(any) { queue.Add(all) },
		})
		working.Go(func() { informer.RunWithContext(ctx) })
	}
	working.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), nodes.HasSynced) {
			queue.Add(all)
			kube.Work(ctx, orphansComponent, queue, func(ctx context.Context, key string) error {
				for _, obj := range nodes.GetStore().List() { // the queue has only the next time of an item, not all
					if since := unreachableSince(obj.(*corev1.Node)); time.Since(since) < unreachableTimeout {
						queue.AddAfter(all, time.Until(since.Add(unreachableTimeout)))
					}
				}
				return c.handle(ctx, key)
			})
		}
	})
	<-ctx.Done()
	queue.ShutDown()
	working.Wait()
}

// gone reports whether there is no such node.
func (c orphanCare) gone(name string) bool {
	_, exists, err := c.nodes.GetByKey(name)
	return err == nil && !exists
}

// lost reports whether there is no such node, or it has been unreachable for unreachableTimeout.
func (c orphanCare) lost(name string) bool {
	obj, _, err := c.nodes.GetByKey(name)
	if node, ok := obj.(*corev1.Node); ok && err == nil {
		since := unreachableSince(node)
		return !since.IsZero() && time.Since(since) >= unreachableTimeout
	}
	return c.gone(name)
}

// handle removes the released volumes of nodes that are gone, and gives back the claims that wait for lost nodes. A failure
// with one of them does not stop the others.
func (c orphanCare) handle(ctx context.Context, _ string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	list, err := c.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{LabelSelector: localpath.NodeLabel})
	if err != nil {
		return fmt.Errorf("listing local volumes: %w", err)
	}
	var errs []error
	for i := range list.Items {
		pv := &list.Items[i]
		if c.gone(pv.Labels[localpath.NodeLabel]) && isReleased(pv) {
			errs = append(errs, c.forget(ctx, pv))
		}
	}
	return errors.Join(append(errs, c.claims(ctx))...)
}

// isReleased reports whether a volume only waits for its directory to be removed. A volume that is bound to a claim
// stays, because its machine may come back with the directory.
func isReleased(pv *corev1.PersistentVolume) bool {
	return pv.Annotations[localpath.ProvisionedBy] == localpath.Provisioner && pv.Status.Phase == corev1.VolumeReleased &&
		pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete
}

// forget removes a volume from the API. Its directory stays on the machine that is gone.
func (c orphanCare) forget(ctx context.Context, pv *corev1.PersistentVolume) error {
	rest := slices.DeleteFunc(slices.Clone(pv.Finalizers), func(f string) bool { return f == localpath.VolumeFinalizer })
	patch := map[string]any{"metadata": map[string]any{"resourceVersion": pv.ResourceVersion, "finalizers": rest}}
	volumes := c.client.CoreV1().PersistentVolumes()
	err := kube.MergePatch(ctx, volumes, pv.Name, patch)
	if err == nil {
		err = volumes.Delete(ctx, pv.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pv.UID))})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("removing volume %s: %w", pv.Name, err)
	}
	node := pv.Labels[localpath.NodeLabel]
	logrus.WithField("component", orphansComponent).Warnf("removed volume %s: node %s is gone, and the directory %s stays there", pv.Name, node, kube.VolumePath(pv))
	return nil
}

// claims gives the claims that wait for volumes on lost nodes back to the scheduler, which would wait for those nodes for
// ever. If such a node has created its volume before that, the claim is bound to it; afterwards the API refuses the volume.
func (c orphanCare) claims(ctx context.Context) error {
	list, err := c.client.CoreV1().PersistentVolumeClaims(metav1.NamespaceAll).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return fmt.Errorf("listing claims: %w", err)
	}
	var errs []error
	for i := range list.Items {
		claim := &list.Items[i]
		node, waits := claim.Annotations[localpath.SelectedNode]
		if !waits || claim.Annotations[localpath.ProvisionerOf] != localpath.Provisioner || claim.Spec.VolumeName != "" || !c.lost(node) {
			continue
		}
		claim = claim.DeepCopy()
		delete(claim.Annotations, localpath.SelectedNode)
		_, err := c.client.CoreV1().PersistentVolumeClaims(claim.Namespace).Update(ctx, claim, metav1.UpdateOptions{FieldManager: "coracle"})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("giving back claim %s/%s: %w", claim.Namespace, claim.Name, err))
			continue
		}
		logrus.WithField("component", orphansComponent).Warnf("claim %s/%s goes to another node: %s is gone or does not answer", claim.Namespace, claim.Name, node)
	}
	return errors.Join(errs...)
}

// unreachableSince is when Kubernetes declared a node unreachable, zero if it is reachable.
func unreachableSince(node *corev1.Node) time.Time {
	for _, t := range node.Spec.Taints {
		if t.Key == corev1.TaintNodeUnreachable && t.Effect == corev1.TaintEffectNoExecute && t.TimeAdded != nil {
			return t.TimeAdded.Time
		}
	}
	return time.Time{}
}
