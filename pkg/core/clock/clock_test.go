package clock

import (
	"context"
	"testing"
	"time"
)

// TestWatchIsQuiet: that setting the clock is noticed was seen by hand (adjtimex by a nanosecond): a test must not set its host's clock.
func TestWatchIsQuiet(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	set, err := Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	stop()
	select {
	case <-set:
		t.Error("nobody set the clock")
	case <-time.After(20 * time.Millisecond):
	}
}
