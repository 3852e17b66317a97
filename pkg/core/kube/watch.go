package kube

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
)

// QuietWhenGone has an informer that has not begun log nothing while the API server does not know its kind: the definition has been removed, and
// whoever watches the kind stops, or waits until it is there again.
func QuietWhenGone(informer cache.SharedInformer) {
	_ = informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) { // it fails only after the informer is started
		if !apierrors.IsNotFound(err) {
			cache.DefaultWatchErrorHandler(ctx, r, err)
		}
	})
}
