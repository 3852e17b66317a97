package localstorage

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// lenient is a client that treats a missing volume as deleted, and a volume that no claim waits for any more as created. The
// library would log an error and retry: it learns of its own deletions after it has begun the next one, and never gives up
// on a volume that it was once asked for.
type lenient struct {
	kubernetes.Interface
	drop func(ctx context.Context, pv *corev1.PersistentVolume) (bool, error) // see provisioner.drop
}

// CoreV1 returns the client with lenient volumes.
func (c lenient) CoreV1() typedv1.CoreV1Interface { return lenientCore{c.Interface.CoreV1(), c} }

// IsWatchListSemanticsUnSupported passes on what the inner client says: fake clients do not support watch lists.
func (c lenient) IsWatchListSemanticsUnSupported() bool {
	inner, ok := c.Interface.(interface{ IsWatchListSemanticsUnSupported() bool })
	return ok && inner.IsWatchListSemanticsUnSupported()
}

type lenientCore struct {
	typedv1.CoreV1Interface
	client lenient
}

func (c lenientCore) PersistentVolumes() typedv1.PersistentVolumeInterface {
	return lenientVolumes{c.CoreV1Interface.PersistentVolumes(), c.client}
}

type lenientVolumes struct {
	typedv1.PersistentVolumeInterface
	client lenient
}

func (v lenientVolumes) Create(ctx context.Context, pv *corev1.PersistentVolume, o metav1.CreateOptions) (*corev1.PersistentVolume, error) {
	made, err := v.PersistentVolumeInterface.Create(ctx, pv, o)
	if !apierrors.IsForbidden(err) {
		return made, err
	}
	dropped, dropErr := v.client.drop(ctx, pv)
	if dropErr != nil || !dropped {
		return nil, errors.Join(err, dropErr)
	}
	return pv, nil
}

func (v lenientVolumes) Delete(ctx context.Context, name string, o metav1.DeleteOptions) error {
	err := v.PersistentVolumeInterface.Delete(ctx, name, o)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
