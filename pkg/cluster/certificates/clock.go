package certificates

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// watchClock sends whenever the machine's clock is set, until ctx is done.
func watchClock(ctx context.Context) (<-chan struct{}, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_REALTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("making a timer that watches the clock: %w", err)
	}
	// The timer never fires. Setting the clock cancels it, which makes it readable (TFD_TIMER_CANCEL_ON_SET).
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
			if _, err := timer.Read(buf); !errors.Is(err, unix.ECANCELED) {
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
