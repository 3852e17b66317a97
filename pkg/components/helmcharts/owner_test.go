package helmcharts

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
)

// revisionOf is the metadata of a revision of release web in namespace apps, made for a HelmChart in a namespace.
func revisionOf(from string) *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	m.Namespace, m.Name = "apps", "sh.helm.release.v1.web.v1"
	m.Labels = map[string]string{"owner": "helm", "name": "web", "version": "1", "status": "deployed", hashLabel: "other", fromLabel: from}
	return m
}

// TestOneRelease: of two HelmCharts with one release, the second must neither change nor remove it.
func TestOneRelease(t *testing.T) {
	mine := object("web", map[string]any{"chartContent": "AAAA", "targetNamespace": "apps"})
	mine.SetFinalizers([]string{finalizer, "another"})
	theirs := object("web", map[string]any{"chart": "web", "targetNamespace": "apps"})
	theirs.SetNamespace("y")
	moved := theirs.DeepCopy()
	moved.Object["spec"] = map[string]any{"chart": "web", "targetNamespace": "elsewhere"}
	for _, tt := range []struct {
		name, from string
		other      *unstructured.Unstructured
		want       string // what is wrong
	}{
		{"another's", "y", theirs, "is that of HelmChart y/web"},
		{"ours", "x", theirs, "archive"},
		{"not known", "", theirs, "archive"},
		{"of one that is gone", "z", theirs, "archive"},
		{"of one that has another now", "y", moved, "archive"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench([]*unstructured.Unstructured{mine.DeepCopy(), tt.other.DeepCopy()}, revisionOf(tt.from))
			name := cache.NewObjectName("x", "web")
			_ = b.reconcile(t.Context(), name)
			if problem := b.ill[name]; !strings.Contains(problem, tt.want) {
				t.Errorf("problem is %q, want %q", problem, tt.want)
			}
		})
	}
	t.Run("deleted", func(t *testing.T) {
		at := metav1.Now()
		mine.SetDeletionTimestamp(&at)
		b := newBench([]*unstructured.Unstructured{mine, theirs}, revisionOf("y"))
		if err := b.reconcile(t.Context(), cache.NewObjectName("x", "web")); err != nil {
			t.Fatal(err)
		}
		if left := b.now(t, "web").GetFinalizers(); !slices.Equal(left, []string{"another"}) {
			t.Errorf("finalizers are %v", left)
		}
		if !strings.Contains(b.log.String(), "its release stays") {
			t.Errorf("log is %s", &b.log)
		}
	})
	t.Run("the other is gone", func(t *testing.T) {
		b := newBench([]*unstructured.Unstructured{mine, object("other", nil)})
		if err := b.reconcile(t.Context(), cache.NewObjectName("y", "web")); err != nil {
			t.Fatal(err)
		}
		if n := b.queue.Len(); n != 1 {
			t.Fatalf("%d are looked at", n)
		}
		if got, _ := b.queue.Get(); got != cache.NewObjectName("x", "web") {
			t.Errorf("%s is looked at", got)
		}
	})
}
