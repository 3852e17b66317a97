// Package clock knows when the machine's clock is set, and what that means for a process that runs.
package clock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Floor is a time in the past: a clock that shows an earlier one is wrong, as that of a board without a battery which boots in 1970.
var Floor = time.Date(2026, time.November, 1, 0, 0, 0, 0, time.UTC)

// Watch sends whenever the machine's clock is set, until ctx is done.
func Watch(ctx context.Context) (<-chan struct{}, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_REALTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("making a timer that watches the clock: %w", err)
	}
	// The timer never ends by itself. Setting the clock cancels it, which makes it readable (TFD_TIMER_CANCEL_ON_SET). Tests make it end.
	never := unix.ItimerSpec{Value: unix.Timespec{Sec: 1 << 40}}
	if err := unix.TimerfdSettime(fd, unix.TFD_TIMER_ABSTIME|unix.TFD_TIMER_CANCEL_ON_SET, &never, nil); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("starting a timer that watches the clock: %w", err)
	}
	timer := os.NewFile(uintptr(fd), "timerfd")
	stop := context.AfterFunc(ctx, func() { timer.Close() })
	set := make(chan struct{}, 1)
	go func() {
		defer stop()
		defer timer.Close()
		buf := make([]byte, 8)
		for {
			if _, err := timer.Read(buf); err != nil && !errors.Is(err, unix.ECANCELED) {
				return
			}
			select {
			case set <- struct{}{}:
			default: // a notification is pending
			}
		}
	}()
	return set, nil
}

// Steps of the clock after which a process starts again. Set back further than mostBack, tokens that were issued just before are not valid
// yet: the API server allows a minute. Set forward further than mostForward, certificates may have ended, which are renewed months before
// their end otherwise.
const (
	mostBack    = time.Minute
	mostForward = 30 * 24 * time.Hour
)

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
		s.watch, s.now = Watch, func() reading { now := time.Now(); return reading{now.Round(0), now.Sub(began)} }
	}
	last := s.now()
	set, err := s.watch(ctx)
	ready()
	if err != nil { // then nothing else notices either
		<-ctx.Done()
		return nil
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-set:
		}
		now := s.now()
		step := now.wall.Sub(last.wall) - (now.steady - last.steady)
		if step < -mostBack || step > mostForward {
			return fmt.Errorf("the clock was set from %s to %s: starting again with certificates and tokens that are valid now",
				now.wall.Add(-step).UTC().Format(time.RFC3339), now.wall.UTC().Format(time.RFC3339))
		}
		last = now
	}
}
