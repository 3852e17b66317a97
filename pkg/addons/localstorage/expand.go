package localstorage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/coracle-dev/coracle/pkg/addons/localstorage/fsquota"
	"github.com/coracle-dev/coracle/pkg/addons/localstorage/localpath"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// expander expands volumes by raising the quota of the file system. Without quotas it sets a condition on the claim.
type expander struct {
	client  kubernetes.Interface
	claims  cache.SharedIndexInformer
	volumes cache.Store
	resize  func(v localpath.Volume, bytes uint64) error
}

func newExpander(s *Storage) *expander {
	return &expander{client: s.client, claims: s.claims, volumes: s.volumes.GetStore(), resize: resize}
}

func (e *expander) run(ctx context.Context) {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](500*time.Millisecond, time.Minute))
	enqueue := func(obj any) {
		if claim, ok := obj.(*corev1.PersistentVolumeClaim); ok && wantsMore(claim) {
			queue.Add(claim.Namespace + "/" + claim.Name)
		}
	}
	_, err := e.claims.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: enqueue, UpdateFunc: func(_, obj any) { enqueue(obj) }})
	if err != nil {
		logrus.WithField("component", component).WithError(err).Warn("watching for claims that grow")
		return
	}
	context.AfterFunc(ctx, queue.ShutDown)
	kube.Work(ctx, component, queue, e.handle)
}

func wantsMore(claim *corev1.PersistentVolumeClaim) bool {
	wanted, has := requested(claim), claim.Status.Capacity[corev1.ResourceStorage]
	failed := slices.ContainsFunc(claim.Status.Conditions, ofResize)
	return claim.Status.Phase == corev1.ClaimBound && claim.Spec.VolumeName != "" && (wanted.Cmp(has) > 0 || failed)
}

func requested(claim *corev1.PersistentVolumeClaim) resource.Quantity {
	return claim.Spec.Resources.Requests[corev1.ResourceStorage]
}

// handle expands one claim to its requested size: first the quota, then the volume, then the claim, so that it can continue
// after a crash at any line.
func (e *expander) handle(ctx context.Context, key string) error {
	obj, exists, err := e.claims.GetStore().GetByKey(key)
	claim, ok := obj.(*corev1.PersistentVolumeClaim)
	if err != nil || !exists || !ok || !wantsMore(claim) {
		return err
	}
	obj, exists, err = e.volumes.GetByKey(claim.Spec.VolumeName)
	pv, ok := obj.(*corev1.PersistentVolume)
	if err != nil || !exists || !ok {
		return err
	}
	wanted, size := requested(claim), pv.Spec.Capacity[corev1.ResourceStorage]
	if wanted.Cmp(size) > 0 {
		v, err := folderOf(pv)
		if err == nil {
			err = e.resize(v, uint64(wanted.Value()))
		}
		if errors.Is(err, fsquota.ErrNotEnforced) {
			return e.refuse(ctx, claim, "QuotaNotEnforced", err)
		}
		if err != nil {
			return errors.Join(err, e.refuse(ctx, claim, "ResizeFailed", err))
		}
		if err := e.patchVolume(ctx, pv, wanted); err != nil {
			return err
		}
		size = wanted
	}
	return e.patchClaim(ctx, claim, size, nil)
}

// refuse sets a condition on the claim that says why its volume is not expanded. The request can be lowered again.
func (e *expander) refuse(ctx context.Context, claim *corev1.PersistentVolumeClaim, reason string, why error) error {
	if i := slices.IndexFunc(claim.Status.Conditions, ofResize); i >= 0 && claim.Status.Conditions[i].Message == why.Error() {
		return nil // the condition is set already
	}
	about := corev1.ObjectReference{
		APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
	}
	source := corev1.EventSource{Component: localpath.Provisioner}
	_ = kube.SendEvent(ctx, e.client, source, about, corev1.EventTypeWarning, "VolumeResizeFailed", why.Error()) // the condition says it, too
	return e.patchClaim(ctx, claim, claim.Status.Capacity[corev1.ResourceStorage], &corev1.PersistentVolumeClaimCondition{
		Type: corev1.PersistentVolumeClaimControllerResizeError, Status: corev1.ConditionTrue,
		LastTransitionTime: metav1.Now(), Reason: reason, Message: why.Error(),
	})
}

func ofResize(c corev1.PersistentVolumeClaimCondition) bool {
	return c.Type == corev1.PersistentVolumeClaimControllerResizeError || c.Type == corev1.PersistentVolumeClaimResizing ||
		c.Type == corev1.PersistentVolumeClaimFileSystemResizePending
}

func (e *expander) patchVolume(ctx context.Context, pv *corev1.PersistentVolume, size resource.Quantity) error {
	patch := map[string]any{"spec": map[string]any{"capacity": corev1.ResourceList{corev1.ResourceStorage: size}}}
	err := kube.MergePatch(ctx, e.client.CoreV1().PersistentVolumes(), pv.Name, patch)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("writing the size of volume %s: %w", pv.Name, err)
	}
	return nil
}

// patchClaim writes the capacity of a claim, and the condition if its request cannot be met.
func (e *expander) patchClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim, size resource.Quantity, wrong *corev1.PersistentVolumeClaimCondition) error {
	conditions := slices.DeleteFunc(slices.Clone(claim.Status.Conditions), ofResize)
	status := map[string]any{"capacity": corev1.ResourceList{corev1.ResourceStorage: size}}
	if wrong != nil {
		conditions = append(conditions, *wrong)
	} else {
		status["allocatedResources"], status["allocatedResourceStatuses"] = corev1.ResourceList{corev1.ResourceStorage: size}, nil
		if requested := requested(claim); requested.Cmp(size) > 0 {
			return nil // the claim has changed meanwhile, and its event triggers handle again
		}
	}
	status["conditions"] = conditions
	patch := map[string]any{"metadata": map[string]any{"resourceVersion": claim.ResourceVersion}, "status": status}
	err := kube.MergePatch(ctx, e.client.CoreV1().PersistentVolumeClaims(claim.Namespace), claim.Name, patch, "status")
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // the claim has changed, and its event triggers handle again
	}
	if err != nil {
		return fmt.Errorf("writing the size of claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return nil
}

// resize raises the quota of a directory.
func resize(v localpath.Volume, bytes uint64) error {
	fs, err := fsquota.Open(v.Base)
	if err != nil {
		return err
	}
	defer fs.Close()
	if !fs.Enforced() {
		return fmt.Errorf("%w: sizes of volumes in %s are %s, and pods of %s can use all the room there is", fsquota.ErrNotEnforced, v.Base, fs, v.PV)
	}
	dir, err := os.Open(v.Path())
	if err != nil {
		return fmt.Errorf("opening the volume's folder: %w", err)
	}
	defer dir.Close()
	return fs.Resize(dir, bytes)
}
