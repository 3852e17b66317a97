package upgrade

import (
	"context"
	"fmt"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
)

// follow reports the progress of the trial until its end.
func (u *upgrading) follow(ctx context.Context) (State, error) {
	tick := time.NewTicker(look)
	defer tick.Stop()
	relieve := time.NewTicker(relief)
	defer relieve.Stop()
	reported := Phase("")
	for {
		s, ok, err := Read(string(u.place))
		if err == nil && !ok {
			err = fmt.Errorf("%s was removed: the result of the upgrade is unknown", u.state())
		}
		if err != nil {
			return s, err
		}
		if s.Phase != reported {
			reported = s.Phase
			u.Say(s.Text())
		}
		if !s.Pending() && (!s.Settled.IsZero() || s.Unsettled != "") {
			return s, s.result()
		}
		select {
		case <-ctx.Done():
			return s, fmt.Errorf("the upgrade continues without this command; see coracle status: %w", context.Cause(ctx))
		case <-relieve.C:
			go func() { _ = Watch(ctx, string(u.place), u.manager) }() // it returns at once if another watcher runs
		case <-tick.C:
		}
	}
}

// relief is the interval at which the command replaces a watcher that has died.
const relief = 10 * time.Second

// result returns the error of a trial that has ended.
func (s State) result() error {
	var err error
	switch s.Phase {
	case Committed:
		return nil
	case Cancelled:
		err = fmt.Errorf("%s was not tried: %s", s.To.Version, s.Error)
	default:
		err = exitcode.With(exitcode.RolledBack, fmt.Errorf("%s did not work: %s\n%s", s.To.Version, s.Error, s.restored()))
	}
	if s.Unsettled != "" {
		err = fmt.Errorf("%w\n%s is installed again, but is not ready: %s", err, s.From.Version, s.Unsettled)
	}
	return err
}

// restored describes what was restored.
func (s State) restored() string {
	text := s.From.Version + " is installed again"
	if s.Unsettled == "" {
		text = s.From.Version + " runs again"
	}
	if s.Datastore {
		return fmt.Sprintf("%s, with the cluster's data from before the upgrade; what was written since is in %s", text, s.Failed)
	}
	return text + "; the datastore was left as it is: " + s.Kept
}
