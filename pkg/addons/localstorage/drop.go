package localstorage

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// drop gives up a volume that the API refuses because its claim does not wait for it any more: the claim is gone, or waits for
// another node. It removes the directory if it is empty and no other volume uses it. It reports whether it gave up the
// volume.
func (p *provisioner) drop(ctx context.Context, pv *corev1.PersistentVolume) (bool, error) {
	waits, err := p.isAwaited(ctx, pv)
	if waits || err != nil {
		return false, err
	}
	v, err := folderOf(pv)
	if err != nil {
		return false, err
	}
	made, others, err := p.current(ctx, pv.Name)
	if err != nil {
		return false, fmt.Errorf("listing the volumes that use the directory of volume %s: %w", pv.Name, err)
	}
	if made != nil { // an earlier request succeeded, and its answer was lost
		return true, nil
	}
	p.folders.Lock()
	defer p.folders.Unlock()
	log := logrus.WithField("component", component).WithField("volume", pv.Name)
	shares := func(other corev1.PersistentVolume) bool { return samePath(&other, pv) }
	if i := slices.IndexFunc(others, shares); i >= 0 { // also a volume that is to be removed: only with the mark it can be
		log.Infof("no claim waits for the volume any more, and %s is the folder of volume %s again", v.Path(), others[i].Name)
		return true, v.HandOver(others[i].Name)
	}
	removed, err := v.RemoveEmpty(func(dir *os.File) error { return release(v.Base, dir) })
	if err != nil {
		return false, err
	}
	if removed {
		log.Infof("no claim waits for the volume any more: removed %s", v.Path())
	} else {
		log.Warnf("no claim waits for the volume any more, and its folder stays: %s", v.Path())
	}
	return true, nil
}

// isAwaited reports whether the claim of a volume waits for a volume on this node.
func (p *provisioner) isAwaited(ctx context.Context, pv *corev1.PersistentVolume) (bool, error) {
	ref := pv.Spec.ClaimRef
	claim, err := p.client.CoreV1().PersistentVolumeClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("asking whether claim %s/%s still waits: %w", ref.Namespace, ref.Name, err)
	}
	if claim.UID != ref.UID {
		return false, nil
	}
	mine, err := p.waitsHere(ctx, claim)
	if apierrors.IsNotFound(err) { // its class
		return false, nil
	}
	return mine, err
}
