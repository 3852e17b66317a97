package state

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// Watch returns a channel that receives a value when a process has written its state since the last value was received. The
// first value is there at once. The channel is closed when ctx is done. Watch creates the directory of the files if it is
// missing, also after a reset has removed it, so that callers can wait for processes that have not started yet.
func Watch(ctx context.Context, dirs paths.Dirs) (<-chan struct{}, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w", dirs.Run, err)
	}
	events := os.NewFile(uintptr(fd), "inotify")
	if err := watch(fd, dirs); err != nil {
		events.Close()
		return nil, err
	}
	changed := make(chan struct{}, 1)
	changed <- struct{}{}
	context.AfterFunc(ctx, func() { events.Close() })
	go func() {
		defer close(changed)
		buf := make([]byte, 64<<10) // the content of the events does not matter
		for {
			n, err := events.Read(buf)
			if err != nil {
				return
			}
			for ended(buf[:n]) {
				<-time.After(pause) // a reset removes the parent directory next
				if ctx.Err() != nil || watch(fd, dirs) == nil {
					break
				}
			}
			select {
			case changed <- struct{}{}:
			default: // a value is waiting already
			}
		}
	}()
	return changed, nil
}

// pause is how long Watch waits before it creates a removed directory again.
const pause = 100 * time.Millisecond

func watch(fd int, dirs paths.Dirs) error {
	dir := filepath.Dir(dirs.State(Front))
	// The front creates the run directory with this mode too.
	if err := os.MkdirAll(dirs.Run, 0o755); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_MOVED_TO|unix.IN_DELETE); err != nil {
		return fmt.Errorf("watching %s: %w", dir, err)
	}
	return nil
}

// ended reports whether the events say that the watch has ended because the directory was removed.
func ended(events []byte) bool {
	for len(events) >= unix.SizeofInotifyEvent {
		mask := binary.NativeEndian.Uint32(events[4:])
		length := binary.NativeEndian.Uint32(events[12:])
		if mask&unix.IN_IGNORED != 0 {
			return true
		}
		events = events[min(len(events), unix.SizeofInotifyEvent+int(length)):]
	}
	return false
}
