// Package clocksteps starts a process again after the machine's clock was set far.
package clocksteps

import (
	"context"
	"fmt"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/clock"
)

// Steps of the clock after which a process starts again. Set back further than mostBack, tokens that were issued just before are not valid
// yet: the API server allows a minute. Set forward further than mostForward, certificates may have ended, which are renewed months before
// their end otherwise.
const (
	mostBack    = time.Minute
	mostForward = 30 * 24 * time.Hour
	// together is how close to each other steps count as one.
	together = 10 * time.Minute
)

// Reason begins the errors of Steps.
const Reason = "the clock was set from "

// Steps is a component that ends its process when the clock is set so far that certificates, and tokens which the process holds for itself
// or for pods, may not be valid any more, or not yet. The process is then started again and gets others. It does not notice that by itself: it keeps
// tokens until they are due, and connections with certificates that are not valid any more for five minutes.
type Steps struct {
	watch func(context.Context) (<-chan struct{}, error) // tests replace both
	now   func() reading
}

// reading is what a clock shows, and a clock that is never set.
type reading struct {
	wall   time.Time
	steady time.Duration
}

// Run watches until ctx is done. It is ready at once. The error says how the clock was set.
func (s Steps) Run(ctx context.Context, ready func()) error {
	if s.watch == nil {
		began := time.Now()
		s.watch, s.now = clock.Watch, func() reading { now := time.Now(); return reading{now.Round(0), now.Sub(began)} }
	}
	last := s.now()
	set, err := s.watch(ctx)
	ready()
	if err != nil { // then nothing else notices either
		<-ctx.Done()
		return nil
	}
	var sum, before time.Duration // of the steps close to each other, and when the last of them was
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-set:
		}
		now := s.now()
		if now.steady-before > together {
			sum = 0
		}
		sum += now.wall.Sub(last.wall) - (now.steady - last.steady)
		if sum < -mostBack || sum > mostForward {
			return fmt.Errorf(Reason+"%s to %s: starting again with certificates and tokens that are valid now",
				now.wall.Add(-sum).UTC().Format(time.RFC3339), now.wall.UTC().Format(time.RFC3339))
		}
		last, before = now, now.steady
	}
}
