package kube

import corev1 "k8s.io/api/core/v1"

// VolumePath is the directory of a volume that is one on a node, "" if it is none.
func VolumePath(pv *corev1.PersistentVolume) string {
	switch {
	case pv.Spec.Local != nil:
		return pv.Spec.Local.Path
	case pv.Spec.HostPath != nil:
		return pv.Spec.HostPath.Path
	}
	return ""
}
