package localstorage

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// lenient is a client to which a volume that is gone is as good as deleted. The library would log it as an error, and
// try again: it hears of its own deletions only after it has begun with the next.
type lenient struct{ kubernetes.Interface }

// CoreV1 is where volumes are.
func (c lenient) CoreV1() typedv1.CoreV1Interface { return lenientCore{c.Interface.CoreV1()} }

// IsWatchListSemanticsUnSupported says for client-go what a client of a test can, through this one.
func (c lenient) IsWatchListSemanticsUnSupported() bool {
	inner, ok := c.Interface.(interface{ IsWatchListSemanticsUnSupported() bool })
	return ok && inner.IsWatchListSemanticsUnSupported()
}

type lenientCore struct{ typedv1.CoreV1Interface }

func (c lenientCore) PersistentVolumes() typedv1.PersistentVolumeInterface {
	return lenientVolumes{c.CoreV1Interface.PersistentVolumes()}
}

type lenientVolumes struct {
	typedv1.PersistentVolumeInterface
}

func (v lenientVolumes) Delete(ctx context.Context, name string, o metav1.DeleteOptions) error {
	err := v.PersistentVolumeInterface.Delete(ctx, name, o)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
