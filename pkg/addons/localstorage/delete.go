package localstorage

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	volumehelpers "k8s.io/component-helpers/storage/volume"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"github.com/coracle-dev/coracle/pkg/addons/localstorage/fsquota"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// Delete removes the directory of a volume.
func (p *provisioner) Delete(ctx context.Context, pv *corev1.PersistentVolume) error {
	others, err := p.isToGo(ctx, pv)
	if err != nil {
		return err
	}
	v, err := folderOf(pv)
	if err != nil {
		return err
	}
	if err := onItsDisk(pv, v); err != nil {
		return err
	}
	if err := v.FinishDelete(); err != nil { // without the lock, because it takes long and would block Provision
		return err
	}
	log := logrus.WithField("component", component).WithField("volume", pv.Name)
	p.folders.Lock()
	aside := sync.OnceFunc(p.folders.Unlock) // unlocked before the content is removed, which takes a while
	defer aside()
	if other := sharing(others, pv); other != "" {
		log.Warnf("volume %s uses %s too: the folder stays", other, v.Path())
		return v.HandOver(other)
	}
	if other := below(others, pv); other != "" {
		return fmt.Errorf("volume %s is in %s: that is not removed before it", other, v.Path())
	}
	err = v.Delete(func(dir *os.File) error {
		aside()
		return release(v.Base, dir)
	})
	if err != nil {
		return err
	}
	log.Debugf("removed %s", v.Path())
	return nil
}

// isToGo returns an error unless the volume is still to be removed, and returns all other volumes that this node may have. The
// library's copy may be outdated, above all when it retries after the API was away: the policy may be Retain by now.
func (p *provisioner) isToGo(ctx context.Context, pv *corev1.PersistentVolume) (others []corev1.PersistentVolume, err error) {
	now, others, err := p.current(ctx, pv.Name)
	if err != nil {
		return nil, fmt.Errorf("asking whether volume %s is still to be removed: %w", pv.Name, err)
	}
	if now == nil || now.UID != pv.UID || !isLast(now) {
		return nil, &controller.IgnoredError{Reason: "it is not to be removed any more"}
	}
	return others, nil
}

// current reads a volume from the API, nil if there is none, and all other volumes that this node may have.
func (p *provisioner) current(ctx context.Context, name string) (now *corev1.PersistentVolume, others []corev1.PersistentVolume, err error) {
	list, err := p.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, err
	}
	node, _ := p.node.Get()
	for i := range list.Items {
		switch pv := &list.Items[i]; {
		case pv.Name == name:
			now = pv
		case node == nil || volumehelpers.CheckNodeAffinity(pv, node.Labels) == nil:
			others = append(others, *pv)
		}
	}
	return now, others, nil
}

// isLast reports whether a volume only waits to be removed with its directory.
func isLast(pv *corev1.PersistentVolume) bool {
	return pv.Status.Phase == corev1.VolumeReleased && pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete
}

// release releases the quota project of a directory.
func release(base string, dir *os.File) error {
	fs, err := fsquota.Open(base)
	if err != nil {
		return err
	}
	defer fs.Close()
	return fs.Release(dir)
}

// sharing returns the name of another volume that needs the same directory, because of a pathPattern or because a user
// created it. A deleted volume is in use as long as its claim exists. Of two volumes that are both to be removed, the one
// whose mark the directory has removes it.
func sharing(others []corev1.PersistentVolume, pv *corev1.PersistentVolume) string {
	for i := range others {
		if other := &others[i]; !isLast(other) && samePath(other, pv) {
			return other.Name
		}
	}
	return ""
}

// below returns the name of a volume inside the directory of pv.
func below(others []corev1.PersistentVolume, pv *corev1.PersistentVolume) string {
	for i := range others {
		if path := kube.VolumePath(&others[i]); within(path, kube.VolumePath(pv)) && !samePath(&others[i], pv) {
			return others[i].Name
		}
	}
	return ""
}

func samePath(a, b *corev1.PersistentVolume) bool {
	return filepath.Clean(kube.VolumePath(a)) == filepath.Clean(kube.VolumePath(b))
}
