package kube

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

func TestOnlyNode(t *testing.T) {
	term := func(key string, values ...string) corev1.TopologySelectorTerm {
		return corev1.TopologySelectorTerm{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: key, Values: values}}}
	}
	for name, c := range map[string]struct {
		mode  storagev1.VolumeBindingMode
		terms []corev1.TopologySelectorTerm
		want  string
	}{
		"one":           {storagev1.VolumeBindingImmediate, []corev1.TopologySelectorTerm{term(corev1.LabelHostname, "a")}, "a"},
		"no mode":       {"", []corev1.TopologySelectorTerm{term(corev1.LabelHostname, "a")}, "a"},
		"waits":         {storagev1.VolumeBindingWaitForFirstConsumer, []corev1.TopologySelectorTerm{term(corev1.LabelHostname, "a")}, ""},
		"any":           {storagev1.VolumeBindingImmediate, nil, ""},
		"two":           {storagev1.VolumeBindingImmediate, []corev1.TopologySelectorTerm{term(corev1.LabelHostname, "a", "b")}, ""},
		"one or other":  {storagev1.VolumeBindingImmediate, []corev1.TopologySelectorTerm{term(corev1.LabelHostname, "a"), term(corev1.LabelHostname, "b")}, ""},
		"other's label": {storagev1.VolumeBindingImmediate, []corev1.TopologySelectorTerm{term("rack", "a")}, ""},
	} {
		class := &storagev1.StorageClass{AllowedTopologies: c.terms}
		if c.mode != "" {
			class.VolumeBindingMode = &c.mode
		}
		if got := OnlyNode(class); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
