package upgrade

import (
	"context"
	"fmt"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
)

// follow tells how the trial goes until its end.
func (u *upgrading) follow(ctx context.Context) (State, error) {
	tick := time.NewTicker(look)
	defer tick.Stop()
	relieve := time.NewTicker(relief)
	defer relieve.Stop()
	told := Phase("")
	for {
		s, ok, err := Read(string(u.place))
		if err == nil && !ok {
			err = fmt.Errorf("somebody has removed %s: what came of the upgrade cannot be told", u.state())
		}
		if err != nil {
			return s, err
		}
		if s.Phase != told {
			told = s.Phase
			u.Say(s.Text())
		}
		if !s.Pending() && (!s.Settled.IsZero() || s.Unsettled != "") {
			return s, s.result()
		}
		select {
		case <-ctx.Done():
			return s, fmt.Errorf("the upgrade goes on without this command; see coracle status: %w", context.Cause(ctx))
		case <-relieve.C:
			go func() { _ = Watch(ctx, string(u.place), u.manager) }() // which ends at once if there is a watcher
		case <-tick.C:
		}
	}
}

// relief is how often the command takes the place of a watcher that is gone.
const relief = 10 * time.Second

// result is the error of a trial that is over.
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

// restored says what was put back.
func (s State) restored() string {
	text := s.From.Version + " is back"
	if s.Unsettled == "" {
		text = s.From.Version + " runs again"
	}
	if s.Datastore {
		return fmt.Sprintf("%s, with the cluster's data of before; what was written meanwhile is in %s", text, s.Failed)
	}
	return text + "; the datastore was left as it is: " + s.Kept
}
