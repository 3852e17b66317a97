package logs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Follow is Read that goes on with lines as they are logged, until ctx is done; that is no error. caughtUp is called
// once, after the lines that were there already.
func Follow(ctx context.Context, path string, filter *Filter, line func(string) error, caughtUp func() error) error {
	changed, err := watch(ctx, filepath.Dir(path))
	if err != nil {
		return err
	}
	newest, err := read(path, filter, line)
	if err != nil {
		return err
	}
	if err := caughtUp(); err != nil {
		return err
	}
	for range changed {
		if newest != nil {
			if err := newest.rest(filter, line); err != nil {
				newest.close()
				return err
			}
		}
		if newest, err = next(newest, path, filter, line); err != nil {
			return err
		}
	}
	return nil
}

// next goes on to a newer file, if there is one and after the end of the old one.
func next(have *reader, path string, filter *Filter, line func(string) error) (*reader, error) {
	r, err := openReader(path)
	if errors.Is(err, fs.ErrNotExist) {
		return have, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the log: %w", err)
	}
	if have != nil {
		if sameFile(have.file, r.file) {
			r.close()
			return have, nil
		}
		err = have.rest(filter, line) // what came before it was renamed
		have.close()
	}
	if err == nil {
		err = r.rest(filter, line)
	}
	return r, err
}

func sameFile(a, b *os.File) bool {
	one, errOne := a.Stat()
	two, errTwo := b.Stat()
	return errOne == nil && errTwo == nil && os.SameFile(one, two)
}

// watch tells when something in dir was written or made. The channel is closed when ctx is done.
func watch(ctx context.Context, dir string) (<-chan struct{}, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w", dir, err)
	}
	events := os.NewFile(uintptr(fd), "inotify")
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_MODIFY|unix.IN_CREATE|unix.IN_MOVED_TO); err != nil {
		events.Close()
		return nil, fmt.Errorf("watching %s: %w", dir, err)
	}
	changed := make(chan struct{}, 1)
	context.AfterFunc(ctx, func() { events.Close() })
	go func() {
		defer close(changed)
		buf := make([]byte, 16<<10) // which file it was does not matter
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
