package clocksteps

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestSteps sets a clock, step by step. Only the last may end the component.
func TestSteps(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct {
		name  string
		apart time.Duration
		steps []time.Duration
		end   bool
	}{
		{"an NTP step", time.Hour, []time.Duration{30 * time.Second, -50 * time.Second}, false},
		{"many small steps back", time.Hour, []time.Duration{-50 * time.Second, -50 * time.Second}, false},
		{"small steps back that add up", 9 * time.Minute, []time.Duration{-50 * time.Second, -9 * time.Second, -2 * time.Second}, true},
		{"a step back and forth", time.Minute, []time.Duration{-50 * time.Second, 50 * time.Second, -50 * time.Second}, false},
		{"back", time.Hour, []time.Duration{-61 * time.Second}, true},
		{"after a suspend", time.Hour, []time.Duration{29 * day}, false},
		{"after a suspend, and back", time.Hour, []time.Duration{29 * day, -day}, true},
		{"from 1970", time.Hour, []time.Duration{56 * 365 * day}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				var off time.Duration
				set := make(chan struct{})
				s := Steps{
					watch: func(context.Context) (<-chan struct{}, error) { return set, nil },
					now:   func() reading { return reading{time.Now().Round(0).Add(off), time.Since(began)} },
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ended := make(chan error, 1)
				go func() { ended <- s.Run(ctx, func() {}) }()
				for i, step := range c.steps {
					time.Sleep(c.apart)
					synctest.Wait()
					off += step
					set <- struct{}{}
					synctest.Wait()
					if last := i == len(c.steps)-1; len(ended) > 0 != (last && c.end) {
						t.Fatalf("after %s it has ended: %t", step, len(ended) > 0)
					}
				}
				cancel()
				if err := <-ended; (err != nil) != c.end || c.end && !strings.Contains(err.Error(), Reason) {
					t.Errorf("it ended with %v", err)
				}
			})
		})
	}
}

// TestStepsWithoutWatch: where setting the clock cannot be noticed, the component goes on.
func TestStepsWithoutWatch(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := Steps{
		watch: func(context.Context) (<-chan struct{}, error) { return nil, errors.New("no timers") },
		now:   func() reading { return reading{} },
	}
	if err := s.Run(ctx, cancel); err != nil {
		t.Error(err)
	}
}
