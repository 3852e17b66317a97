package kube

import (
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// Trim returns a transform for an informer, to save memory: of each object of type T the store has only its identity and what
// keep copies. Objects of other types stay as they are.
func Trim[T any, P interface {
	*T
	metav1.Object
}](keep func(full, small P)) cache.TransformFunc {
	return func(obj any) (any, error) {
		full, ok := obj.(P)
		if !ok {
			return obj, nil
		}
		small := P(new(T))
		small.SetNamespace(full.GetNamespace())
		small.SetName(full.GetName())
		small.SetUID(full.GetUID())
		small.SetResourceVersion(full.GetResourceVersion())
		small.SetCreationTimestamp(full.GetCreationTimestamp())
		small.SetDeletionTimestamp(full.GetDeletionTimestamp())
		keep(full, small)
		return small, nil
	}
}

// DropManagedFields is a transform for an informer that keeps all of an object but its managed fields.
func DropManagedFields(obj any) (any, error) {
	if o, ok := obj.(metav1.Object); ok {
		o.SetManagedFields(nil)
	}
	return obj, nil
}

// SameContent reports whether two versions of an object differ only in their resource version, as those of a trimmed one often do.
func SameContent(old, obj any) bool {
	a, okA := old.(runtime.Object)
	b, okB := obj.(metav1.Object)
	if !okA || !okB {
		return false
	}
	a = a.DeepCopyObject()
	a.(metav1.Object).SetResourceVersion(b.GetResourceVersion())
	return equality.Semantic.DeepEqual(a, obj)
}

// ListOf returns the objects of type T in an informer's store.
func ListOf[T any](store cache.Store) (out []T) {
	for _, obj := range store.List() {
		if one, ok := obj.(T); ok {
			out = append(out, one)
		}
	}
	return out
}
