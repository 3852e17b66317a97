package state

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/paths"
)

// Watch returns a channel that holds a value whenever a process has written since the last time one was taken. The
// first value is there at once. The channel is closed when ctx is done. The directory is made if it is missing, so
// that one can wait for processes that have yet to start.
func Watch(ctx context.Context, dirs paths.Dirs) (<-chan struct{}, error) {
	dir := filepath.Dir(dirs.State(Front))
	// Somebody may watch before anything has started; the front makes the run directory with this mode too.
	if err := os.MkdirAll(dirs.Run, 0o755); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w", dir, err)
	}
	events := os.NewFile(uintptr(fd), "inotify")
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_MOVED_TO|unix.IN_DELETE); err != nil {
		events.Close()
		return nil, fmt.Errorf("watching %s: %w", dir, err)
	}
	changed := make(chan struct{}, 1)
	changed <- struct{}{}
	context.AfterFunc(ctx, func() { events.Close() })
	go func() {
		defer close(changed)
		buf := make([]byte, 64<<10) // which file it was does not matter
		for {
			if _, err := events.Read(buf); err != nil {
				return
			}
			select {
			case changed <- struct{}{}:
			default: // one that nobody has taken yet says the same
			}
		}
	}()
	return changed, nil
}
