// Package clock knows when the machine's clock is set, and when it is certainly wrong.
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
