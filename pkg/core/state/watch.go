package state

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// Watch returns a channel that receives a value when a process has written its state since the last value was received. The
// first value is there at once. The channel is closed when ctx is done. Watch creates the directory of the files if it is
// missing, also after a reset has removed it, so that callers can wait for processes that have not started yet.
func Watch(ctx context.Context, dirs paths.Dirs) (<-chan struct{}, error) {
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		err = watch(watcher, dirs)
	}
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w", dirs.Run, err)
	}
	changed := make(chan struct{}, 1)
	changed <- struct{}{}
	go func() {
		defer close(changed)
		defer watcher.Close()
		for {
			select {
			case <-ctx.Done():
				return
			case <-watcher.Errors: // events were lost
			case event := <-watcher.Events:
				ended := event.Name == dir(dirs) && event.Has(fsnotify.Remove)
				if !ended && (strings.HasPrefix(filepath.Base(event.Name), ".") || !event.Has(fsnotify.Create|fsnotify.Remove)) {
					continue // a temporary file that is about to be renamed
				}
				for ended && ctx.Err() == nil {
					<-time.After(pause) // a reset removes the parent directory next
					ended = watch(watcher, dirs) != nil
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

// dir is the directory of the state files.
func dir(dirs paths.Dirs) string { return filepath.Dir(dirs.State(Front)) }

func watch(watcher *fsnotify.Watcher, dirs paths.Dirs) error {
	if err := os.MkdirAll(dirs.Run, 0o755); err != nil { // as the front does
		return err
	}
	if err := os.MkdirAll(dir(dirs), 0o700); err != nil {
		return err
	}
	return watcher.Add(dir(dirs))
}
