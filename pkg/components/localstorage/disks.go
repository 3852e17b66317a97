package localstorage

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/coracle-dev/coracle/pkg/localpath"
)

// present are those of some directories whose disk is there, as far as the volumes in them tell: what is made in another
// one now would be on the disk below the mount point, and out of sight once the right one is mounted.
func (p *provisioner) present(bases []string) ([]string, error) {
	mounts, err := localpath.MountPoints()
	if err != nil {
		return nil, err
	}
	without := map[string]string{} // where a disk should be mounted, by directory
	for _, obj := range p.volumes.List() {
		if pv, ok := obj.(*corev1.PersistentVolume); ok {
			if v, err := folderOf(pv); err == nil && slices.Contains(bases, v.Base) && without[v.Base] == "" {
				without[v.Base] = missing(pv, v, mounts)
			}
		}
	}
	there := slices.DeleteFunc(slices.Clone(bases), func(base string) bool { return without[base] != "" })
	if len(there) == 0 {
		return nil, elsewhere{fmt.Errorf("volumes in %s were on the file system mounted at %s, which is not mounted: mount it, or, if "+
			"that disk is gone for good, remove annotation %s of its volumes", bases[0], without[bases[0]], localpath.MountAnnotation)}
	}
	return there, nil
}

// onItsDisk is an error if the disk is not there that a volume's folder is on.
func onItsDisk(pv *corev1.PersistentVolume, v localpath.Volume) error {
	mounts, err := localpath.MountPoints()
	if err != nil {
		return err
	}
	if mount := missing(pv, v, mounts); mount != "" {
		return fmt.Errorf("%s was on the file system mounted at %s, which is not mounted: the folder is removed once it is; if that "+
			"disk is gone for good, remove annotation %s of volume %s", v.Path(), mount, localpath.MountAnnotation, pv.Name)
	}
	return nil
}

// missing is where the disk of a volume should be mounted and is not. A folder that is there nevertheless was moved, and
// a volume that does not say where its disk was is on one that is always there.
func missing(pv *corev1.PersistentVolume, v localpath.Volume, mounts []string) string {
	mount := pv.Annotations[localpath.MountAnnotation]
	if mount == "" || mount == "/" || slices.Contains(mounts, mount) || v.Exists() {
		return ""
	}
	return mount
}
