package front

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestRunWhile: what is run comes and goes with a file, and comes again after it gave up when the file changes.
func TestRunWhile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	ctx, cancel := context.WithCancel(t.Context())
	changes, err := entries(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	put := func() {
		t.Helper()
		if err := errors.Join(os.WriteFile(file+".new", nil, 0o600), os.Rename(file+".new", file)); err != nil {
			t.Fatal(err)
		}
	}
	started, stopped, fail := make(chan struct{}), make(chan struct{}), make(chan error)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runWhile(ctx, changes, func() bool { _, err := os.Stat(file); return err == nil }, func(life context.Context) error {
			started <- struct{}{}
			select {
			case err := <-fail:
				return err
			case <-life.Done():
				stopped <- struct{}{}
				return nil
			}
		})
	}()
	await := func(what string, c <-chan struct{}) {
		t.Helper()
		select {
		case <-c:
		case <-time.After(10 * time.Second):
			t.Fatalf("not %s", what)
		}
	}
	put()
	await("started", started)
	put() // a change is not a start
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	await("stopped", stopped)
	put()
	await("started again", started)
	fail <- errors.New("it gives up")
	put()
	await("started after it gave up", started)
	cancel()
	await("stopped at the end", stopped)
	await("over", ended)
}
