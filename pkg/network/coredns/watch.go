package coredns

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/fsnotify/fsnotify"
)

// watchFile sends after changes of a file. The file may be written in place, replaced, removed, be a symbolic link, or be a bind mount,
// as Docker's /etc/resolv.conf is.
func watchFile(ctx context.Context, path string) (<-chan struct{}, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w", path, err)
	}
	names := []string{path}
	if target, err := filepath.EvalSymlinks(path); err == nil && target != path {
		names = append(names, target)
	}
	for _, name := range names {
		if err := watcher.Add(filepath.Dir(name)); err != nil {
			watcher.Close()
			return nil, fmt.Errorf("watching %s: %w", path, err)
		}
	}
	// The watch of a directory does not include a file that is mounted over: watch it too, and its successors.
	watchItself := func() { _ = watcher.Add(path) }
	watchItself()
	changes := make(chan struct{}, 1)
	go func() {
		defer watcher.Close()
		for {
			select {
			case <-ctx.Done():
				return
			case event := <-watcher.Events:
				if !slices.Contains(names, event.Name) {
					continue
				}
				if !event.Has(fsnotify.Write) {
					watchItself()
				}
			case <-watcher.Errors: // events were lost
			}
			select {
			case changes <- struct{}{}:
			default: // a notification is pending
			}
		}
	}()
	return changes, nil
}
