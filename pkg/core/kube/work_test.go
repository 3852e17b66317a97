package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

// levels is a hook that remembers the levels of what is logged.
type levels []logrus.Level

func (l *levels) Levels() []logrus.Level { return logrus.AllLevels }

func (l *levels) Fire(e *logrus.Entry) error { *l = append(*l, e.Level); return nil }

// TestConflict: only conflicts that last are worth a warning.
func TestConflict(t *testing.T) {
	var logged levels
	logger := logrus.StandardLogger()
	hooks, level := logger.ReplaceHooks(logrus.LevelHooks{}), logger.GetLevel()
	logger.AddHook(&logged)
	logger.SetLevel(logrus.DebugLevel)
	defer func() { logger.ReplaceHooks(hooks); logger.SetLevel(level) }()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Millisecond, time.Millisecond))
	queue.Add("late")
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "endpointslices"}, "kube-dns", errors.New("the object has been modified"))
	tries := 0
	Work(t.Context(), "test", queue, func(context.Context, string) error {
		if tries++; tries > lastingConflict+1 {
			queue.ShutDown()
			return nil
		}
		return errors.Join(nil, fmt.Errorf("updating: %w", conflict))
	})
	want := levels{logrus.DebugLevel, logrus.DebugLevel, logrus.DebugLevel, logrus.WarnLevel}
	if !slices.Equal(logged, want) {
		t.Errorf("logged at %v, want %v", logged, want)
	}
}
