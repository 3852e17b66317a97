package lifecycle

import (
	"context"
	"errors"
	"time"

	"github.com/sirupsen/logrus"
)

// failed is the cause for which the contexts of all units are done after one of them has failed.
type failed struct{ error }

// Is makes it a cancellation for all who do not ask why.
func (failed) Is(target error) bool { return target == context.Canceled }

// Failure returns the failure for which ctx's group ends, and nil if it was asked to end or goes on.
func Failure(ctx context.Context) error {
	var f failed
	errors.As(context.Cause(ctx), &f)
	return f.error
}

// stopTimeout returns how long u may take to stop. Without one that it needs it may wait for answers that do not come.
func (g *Group) stopTimeout(u *Unit) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, n := range u.needs {
		if n.status.State == Failed {
			return min(g.StopTimeout, forlornTimeout)
		}
	}
	return g.StopTimeout
}

// forlornTimeout is how long a unit may take to stop after one that it needs has failed.
const forlornTimeout = 2 * time.Second

// stop cancels a running unit and waits for it, at most timeout. It reports whether the unit has stopped.
func (g *Group) stop(u *Unit, log logrus.FieldLogger, timeout time.Duration, cancel func(), result <-chan error) bool {
	began := time.Now()
	g.set(u, func(s *Status) { s.State = Stopping })
	cancel()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case err := <-result:
		entry := log.WithField("took", since(began))
		if err != nil && !errors.Is(err, context.Canceled) {
			entry = entry.WithError(err)
		}
		entry.Debug("stopped")
		return true
	case <-timer.C:
		log.WithField("took", since(began)).Warn("abandoned: it did not stop in time")
		return false
	}
}
