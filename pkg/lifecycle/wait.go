package lifecycle

import (
	"context"
	"fmt"
	"time"
)

// waitKey is the context key under which a group listens to what its units wait for.
type waitKey struct{}

// WaitingFor tells the group that runs ctx's unit what the unit waits for. An empty text ends the wait.
func WaitingFor(ctx context.Context, what string) {
	if tell, ok := ctx.Value(waitKey{}).(func(string)); ok {
		tell(what)
	}
}

// The pace of Until: quick at first because a start is short, slow for what takes long.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = 250 * time.Millisecond
	tryTimeout = 5 * time.Second
)

// Until probes until the probe succeeds or ctx is done, for things that offer no event to wait on. Each try has
// five seconds. What is awaited and the last error show up in the group's reports and in the returned error.
func Until(ctx context.Context, what string, probe func(context.Context) error) error {
	defer WaitingFor(ctx, "")
	for pause := firstPause; ; pause = min(pause*5/4, lastPause) {
		try, cancel := context.WithTimeout(ctx, tryTimeout)
		err := probe(try)
		cancel()
		if err == nil {
			return nil
		}
		WaitingFor(ctx, fmt.Sprintf("%s, last: %v", what, err))
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w, last: %w", what, context.Cause(ctx), err)
		case <-time.After(pause):
		}
	}
}
