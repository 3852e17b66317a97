package filelock

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"
)

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := Try(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Try(path); !errors.Is(err, ErrHeld) {
		t.Errorf("locked twice: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := Wait(ctx, path); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("locked twice: %v", err)
	}
	free := make(chan error)
	go func() {
		second, err := Wait(t.Context(), path)
		if err == nil {
			second.Close()
		}
		free <- err
	}()
	first.Close()
	if err := <-free; err != nil {
		t.Error(err)
	}
	if _, err := Try(filepath.Join(path, "x")); err == nil || errors.Is(err, ErrHeld) {
		t.Errorf("locked without a directory: %v", err)
	}
}
