package logs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// Follow is Read that continues with new lines as they are logged. It returns nil when ctx is done. caughtUp is called
// once, after the existing lines.
func Follow(ctx context.Context, path string, filter *Filter, line func(string) error, caughtUp func() error) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watching the log: %w", err)
	}
	defer watcher.Close()
	if err := watcher.Add(filepath.Dir(path)); err != nil {
		return fmt.Errorf("watching %s: %w", filepath.Dir(path), err)
	}
	newest, err := read(path, filter, line)
	if err != nil {
		return err
	}
	if err := caughtUp(); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-watcher.Events: // which file it was does not matter
		case <-watcher.Errors: // events were lost
		}
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
}

// next returns the reader of a newer file, if there is one, after it has read the rest of the old one.
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
		err = have.rest(filter, line) // lines that were written before it was renamed
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
