package localstorage

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"github.com/coracle-dev/coracle/pkg/addons/localstorage/localpath"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// plan is the volume that a claim gets. It depends only on the claim, its class, the configuration and the node, so that it is
// the same after a crash.
type plan struct {
	options  controller.ProvisionOptions
	node     string // name of the Node
	hostname string // its label, which the volume's node affinity refers to
	bases    []string
	folder   string
	hostPath bool // else local
}

// elsewhere is an error of this node; another node may be able to provide the volume.
type elsewhere struct{ error }

func (e elsewhere) Unwrap() error { return e.error }

// The parameters of a StorageClass.
const (
	nodePath      = "nodePath"
	pathPattern   = "pathPattern"
	unsafePattern = "allowUnsafePathPattern"
)

func newPlan(o controller.ProvisionOptions, config localpath.Config, node *corev1.Node) (plan, error) {
	p := plan{options: o, node: node.Name, hostname: hostname(node)}
	if err := checkClaim(o.PVC); err != nil {
		return p, err
	}
	for _, name := range slices.Sorted(maps.Keys(o.StorageClass.Parameters)) {
		if name != nodePath && name != pathPattern && name != unsafePattern {
			return p, fmt.Errorf("StorageClass %s has parameter %q, and there are only %s, %s and %s",
				o.StorageClass.Name, name, nodePath, pathPattern, unsafePattern)
		}
	}
	paths, err := config.Places(node.Name, o.StorageClass.Name)
	if errors.Is(err, localpath.ErrShared) {
		return p, err
	}
	if err != nil {
		return p, elsewhere{err}
	}
	if p.bases, err = chosen(paths, o.StorageClass.Parameters[nodePath]); err != nil {
		return p, elsewhere{err}
	}
	names := localpath.Names{PVName: o.PVName, PVC: localpath.Claim{
		Name: o.PVC.Name, Namespace: o.PVC.Namespace, UID: string(o.PVC.UID), Labels: o.PVC.Labels, Annotations: o.PVC.Annotations}}
	unsafe := o.StorageClass.Parameters[unsafePattern] == "true" || o.StorageClass.Annotations[unsafePattern] == "true"
	if p.folder, err = localpath.Folder(o.StorageClass.Parameters[pathPattern], names, unsafe); err != nil {
		return p, err
	}
	p.hostPath, err = kindOf(o)
	return p, err
}

// hostname is the label by which the scheduler finds a node.
func hostname(node *corev1.Node) string { return cmp.Or(node.Labels[corev1.LabelHostname], node.Name) }

// checkClaim refuses claims that a directory on one node cannot fulfil.
func checkClaim(claim *corev1.PersistentVolumeClaim) error {
	for _, mode := range claim.Spec.AccessModes {
		if mode != corev1.ReadWriteOnce && mode != corev1.ReadWriteOncePod {
			return fmt.Errorf("a local volume is on one node: access mode must be ReadWriteOnce or ReadWriteOncePod, not %s", mode)
		}
	}
	switch {
	case claim.Spec.Selector != nil:
		return errors.New("the claim has a selector, and volumes that are made for a claim have no labels to select by: remove spec.selector")
	case claim.Spec.DataSource != nil || claim.Spec.DataSourceRef != nil:
		return errors.New("local volumes begin empty: remove spec.dataSource")
	}
	return nil
}

// chosen returns the paths to choose from.
func chosen(paths []string, wanted string) ([]string, error) {
	if wanted == "" {
		return paths, nil
	}
	if !slices.Contains(paths, wanted) {
		return nil, fmt.Errorf("parameter %s of the StorageClass is %s, and this node has %s", nodePath, wanted, strings.Join(paths, ", "))
	}
	return []string{wanted}, nil
}

// kindOf reports whether the volume is of type hostPath. The claim's annotation overrides that of the class.
func kindOf(o controller.ProvisionOptions) (hostPath bool, err error) {
	kind := cmp.Or(o.PVC.Annotations[localpath.TypeAnnotation], o.StorageClass.Annotations[localpath.DefaultTypeAnnotation], "local")
	switch strings.ToLower(kind) {
	case "local":
		return false, nil
	case "hostpath":
		if len(o.StorageClass.MountOptions) > 0 {
			return true, errors.New("volumes of type hostPath know no mountOptions: use type local, or remove them from the StorageClass")
		}
		return true, nil
	}
	return false, fmt.Errorf("a volume's type is local or hostPath, not %q", kind)
}

// volume returns the volume in one of the bases.
func (p plan) volume(base string) localpath.Volume {
	return localpath.Volume{Base: base, Folder: p.folder, PV: p.options.PVName}
}

// pv returns the PersistentVolume for a directory that was made.
func (p plan) pv(v localpath.Volume, mount, quota string) *corev1.PersistentVolume {
	claim, class := p.options.PVC, p.options.StorageClass
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:   p.options.PVName,
			Labels: map[string]string{localpath.NodeLabel: p.node},
			Annotations: map[string]string{
				localpath.PlacedAnnotation: p.node, localpath.BaseAnnotation: v.Base, localpath.MountAnnotation: mount, localpath.QuotaAnnotation: quota,
			},
		},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			AccessModes:                   claim.Spec.AccessModes,
			VolumeMode:                    claim.Spec.VolumeMode,
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage]},
			MountOptions:                  class.MountOptions,
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{p.hostname}}},
			}}}},
		},
	}
	if class.ReclaimPolicy != nil {
		pv.Spec.PersistentVolumeReclaimPolicy = *class.ReclaimPolicy
	}
	if p.hostPath {
		kind := corev1.HostPathDirectory // the kubelet must not create it: it would be empty, and perhaps on another disk
		pv.Spec.HostPath = &corev1.HostPathVolumeSource{Path: v.Path(), Type: &kind}
	} else {
		pv.Spec.Local = &corev1.LocalVolumeSource{Path: v.Path()}
	}
	return pv
}

// folderOf returns the directory of a PersistentVolume of this provisioner.
func folderOf(pv *corev1.PersistentVolume) (localpath.Volume, error) {
	path := kube.VolumePath(pv)
	if path == "" {
		return localpath.Volume{}, fmt.Errorf("volume %s is neither local nor hostPath", pv.Name)
	}
	base := strings.TrimSuffix(pv.Annotations[localpath.BaseAnnotation], "/")
	folder, below := strings.CutPrefix(path, base+"/")
	if base == "" || !below {
		i := strings.LastIndexByte(path, '/')
		base, folder = path[:i], path[i+1:]
	}
	if base == "" || folder == "" {
		return localpath.Volume{}, fmt.Errorf("volume %s is at %s, which cannot be a volume's folder", pv.Name, path)
	}
	return localpath.Volume{Base: base, Folder: folder, PV: pv.Name}, nil
}
