// Package filelock keeps processes apart with locks on files, which end with the process that has them.
package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// ErrHeld is part of the error of a lock that another process has.
var ErrHeld = errors.New("another process has the lock")

// Try locks the file at path while the returned file is open. It makes the file, but not its directory.
func Try(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return f, nil
	}
	f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = ErrHeld
	}
	return nil, fmt.Errorf("locking %s: %w", path, err)
}

// Wait is Try, but waits while another process has the lock.
func Wait(ctx context.Context, path string) (*os.File, error) {
	const pause = 50 * time.Millisecond
	for {
		f, err := Try(path)
		if !errors.Is(err, ErrHeld) {
			return f, err
		}
		if lifecycle.Sleep(ctx, pause) != nil {
			return nil, fmt.Errorf("waiting for the lock %s: %w", path, context.Cause(ctx))
		}
	}
}
