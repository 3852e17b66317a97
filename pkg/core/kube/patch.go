package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// FieldManager is the name under which coracle changes objects.
const FieldManager = "coracle"

// patcher is a client of one kind of objects.
type patcher[T any] interface {
	Patch(ctx context.Context, name string, kind types.PatchType, data []byte, o metav1.PatchOptions, subresources ...string) (T, error)
}

// MergePatch merges a patch, which is anything that can be encoded as JSON, into an object or a subresource of it, within ten
// seconds.
func MergePatch[T any](ctx context.Context, objects patcher[T], name string, patch any, subresources ...string) error {
	data, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encoding a patch of %s: %w", name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err = objects.Patch(ctx, name, types.MergePatchType, data, metav1.PatchOptions{FieldManager: FieldManager}, subresources...)
	return err
}

// NodeReadiness returns the status of a Node's condition Ready; False if it has none.
func NodeReadiness(node *corev1.Node) corev1.ConditionStatus {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return corev1.ConditionFalse
}
