package helm

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
	free := theirs.DeepCopy()
	free.SetAnnotations(map[string]string{unmanagedAnnotation: "true"})
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
		{"of one that is not ours any more", "y", free, "archive"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench([]*unstructured.Unstructured{mine.DeepCopy(), tt.other.DeepCopy()}, revisionOf(tt.from))
			name := cache.NewObjectName("x", "web")
			_ = b.reconcile(t.Context(), name)
			if problem := b.problems[name]; !strings.Contains(problem, tt.want) {
				t.Errorf("problem is %q, want %q", problem, tt.want)
			}
		})
	}
	for name, other := range map[string]*unstructured.Unstructured{"deleted": theirs, "deleted before it was taken over": free} {
		t.Run(name, func(t *testing.T) {
			at := metav1.Now()
			gone := mine.DeepCopy()
			gone.SetDeletionTimestamp(&at)
			b := newBench([]*unstructured.Unstructured{gone, other.DeepCopy()}, revisionOf("y"))
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
	}
	for name, others := range map[string][]*unstructured.Unstructured{"the other is gone": nil, "the other is let go": {free}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(append(others, mine, object("other", nil)))
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
}
