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

// Watch returns a channel that holds a value whenever a process has written since the last time one was taken. The
// first value is there at once. The channel is closed when ctx is done. The directory is made if it is missing, so
// that one can wait for processes that have yet to start, and again when a reset takes it away.
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
		buf := make([]byte, 64<<10) // which file it was does not matter
		for {
			n, err := events.Read(buf)
			if err != nil {
				return
			}
			for ended(buf[:n]) {
				<-time.After(pause) // whoever removes the directory is about to remove the one above it
				if ctx.Err() != nil || watch(fd, dirs) == nil {
					break
				}
			}
			select {
			case changed <- struct{}{}:
			default: // one that nobody has taken yet says the same
			}
		}
	}()
	return changed, nil
}

// pause is how long after its end a directory is watched again.
const pause = 100 * time.Millisecond

func watch(fd int, dirs paths.Dirs) error {
	dir := filepath.Dir(dirs.State(Front))
	// Somebody may watch before anything has started; the front makes the run directory with this mode too.
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

// ended reports whether the kernel says that the directory is watched no more, because it was removed.
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
