package kube

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

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

// OnlyNode is the hostname label of the one node that a StorageClass allows volumes on, if it makes them at once instead
// of waiting for the scheduler; else "".
func OnlyNode(class *storagev1.StorageClass) string {
	if class.VolumeBindingMode != nil && *class.VolumeBindingMode != storagev1.VolumeBindingImmediate || len(class.AllowedTopologies) != 1 {
		return ""
	}
	for _, e := range class.AllowedTopologies[0].MatchLabelExpressions {
		if e.Key == corev1.LabelHostname && len(e.Values) == 1 {
			return e.Values[0]
		}
	}
	return ""
}
