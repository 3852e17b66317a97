package kube

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// TestWork has an item that fails once come again, and none when all is to end.
func TestWork(t *testing.T) {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Millisecond, time.Second))
	queue.Add("fails once")
	var seen []string
	ctx, cancel := context.WithCancel(t.Context())
	Work(ctx, "test", queue, func(_ context.Context, item string) error {
		seen = append(seen, item)
		switch {
		case len(seen) == 1:
			return errors.New("not yet")
		case item == "fails once":
			queue.Add("ends it")
			return nil
		}
		cancel()
		queue.ShutDown()
		return errors.New("at the end")
	})
	if want := []string{"fails once", "fails once", "ends it"}; !slices.Equal(seen, want) {
		t.Errorf("handled %q, want %q", seen, want)
	}
	if n := queue.NumRequeues("ends it"); n != 0 {
		t.Errorf("what failed at the end comes again: %d", n)
	}
}
