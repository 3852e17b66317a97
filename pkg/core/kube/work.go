package kube

import (
	"context"

	"github.com/sirupsen/logrus"
	"k8s.io/client-go/util/workqueue"
)

// Work handles what is in a queue, one item after the other, until the queue is shut down. What could not be handled is
// logged for the component and comes again, ever later, unless ctx is done.
func Work[T comparable](ctx context.Context, component string, queue workqueue.TypedRateLimitingInterface[T], handle func(context.Context, T) error) {
	for item, down := queue.Get(); !down; item, down = queue.Get() {
		if err := handle(ctx, item); err != nil && ctx.Err() == nil {
			logrus.WithField("component", component).WithError(err).Warn("trying again")
			queue.AddRateLimited(item)
		} else {
			queue.Forget(item)
		}
		queue.Done(item)
	}
}
