package supervise

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// HeldError is that of a lock somebody else holds.
type HeldError struct {
	Path string
	PID  int // 0 if not known
}

func (e *HeldError) Error() string {
	dir := filepath.Dir(e.Path)
	if e.PID == 0 {
		return fmt.Sprintf("another coracle is using %s", dir)
	}
	return fmt.Sprintf("another coracle (pid %d) is using %s", e.PID, dir)
}

// Lock takes the lock at path for as long as the returned file is open and this process lives, and writes our pid
// into it. If somebody has it the error is a HeldError.
func Lock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		defer f.Close()
		return nil, &HeldError{Path: path, PID: readPID(f)}
	}
	if err == nil {
		err = writePID(f)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return f, nil
}

func readPID(f *os.File) int {
	buf := make([]byte, 32)
	n, _ := f.ReadAt(buf, 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(buf[:n])))
	if err != nil {
		return 0
	}
	return pid
}

// writePID writes this process's PID, which only messages use: a full disk is no error.
func writePID(f *os.File) error {
	text := strconv.Itoa(os.Getpid()) + "\n"
	_, err := f.WriteAt([]byte(text), 0)
	if errors.Is(err, unix.ENOSPC) {
		return nil
	}
	return errors.Join(err, f.Truncate(int64(len(text))))
}
