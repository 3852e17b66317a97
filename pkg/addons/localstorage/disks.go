package localstorage

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/coracle-dev/coracle/pkg/addons/localstorage/localpath"
)

// disk is the mount point of the file system on which volumes in a directory were made.
type disk struct{ base, mount string }

// present returns the directories whose disk is mounted, judged by the volumes in them. A volume that was made while the disk
// is missing would be on the disk below the mount point, and hidden once the right disk is mounted.
func (p *provisioner) present(bases []string) ([]string, error) {
	mounts, err := localpath.MountPoints()
	if err != nil {
		return nil, err
	}
	lost := p.lost(bases, mounts)
	there := slices.Clone(bases)
	for d := range lost {
		there = slices.DeleteFunc(there, func(base string) bool { return base == d.base })
	}
	if len(there) == 0 {
		var errs []error
		byMount := func(a, b disk) int { return strings.Compare(a.mount+a.base, b.mount+b.base) }
		for _, d := range slices.SortedFunc(maps.Keys(lost), byMount) {
			errs = append(errs, fmt.Errorf("volumes in %s were on the file system mounted at %s, which is not mounted: mount it, or, if "+
				"that disk is gone for good, say so with %s", d.base, d.mount, forget(lost[d]...)))
		}
		return nil, elsewhere{errors.Join(errs...)}
	}
	return there, nil
}

// lost returns the disks that are not mounted, with their volumes. It leaves out a disk if some of its volumes exist: these
// were moved, so the disk was given up.
func (p *provisioner) lost(bases, mounts []string) map[disk][]string {
	lost, moved := map[disk][]string{}, map[disk]bool{}
	for _, obj := range p.volumes.List() {
		pv, ok := obj.(*corev1.PersistentVolume)
		if !ok || isMounted(pv, mounts) {
			continue
		}
		v, err := folderOf(pv)
		switch d := (disk{v.Base, pv.Annotations[localpath.MountAnnotation]}); {
		case err != nil || !slices.Contains(bases, v.Base):
		case v.Exists():
			moved[d] = true
		default:
			lost[d] = append(lost[d], pv.Name)
		}
	}
	maps.DeleteFunc(lost, func(d disk, _ []string) bool { return moved[d] })
	return lost
}

// forget returns the command that tells coracle not to wait for the disk of some volumes.
func forget(volumes ...string) string {
	return fmt.Sprintf("kubectl annotate pv %s %s-", strings.Join(slices.Sorted(slices.Values(volumes)), " "), localpath.MountAnnotation)
}

// onItsDisk returns an error if the disk of a volume's directory is not mounted. A directory that exists nevertheless was moved.
func onItsDisk(pv *corev1.PersistentVolume, v localpath.Volume) error {
	mounts, err := localpath.MountPoints()
	if err != nil {
		return err
	}
	if !isMounted(pv, mounts) && !v.Exists() {
		return fmt.Errorf("%s was on the file system mounted at %s, which is not mounted: the folder is removed once it is; if that "+
			"disk is gone for good, say so with %s", v.Path(), pv.Annotations[localpath.MountAnnotation], forget(pv.Name))
	}
	return nil
}

// isMounted reports whether a file system is mounted at the mount point of a volume. A volume without one is on a file system
// that is always mounted.
func isMounted(pv *corev1.PersistentVolume, mounts []string) bool {
	mount := pv.Annotations[localpath.MountAnnotation]
	return mount == "" || mount == "/" || slices.Contains(mounts, mount)
}
