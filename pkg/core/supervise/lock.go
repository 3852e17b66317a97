package supervise

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/filelock"
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
	f, err := filelock.Try(path)
	if errors.Is(err, filelock.ErrHeld) {
		return nil, &HeldError{Path: path, PID: readPID(path)}
	}
	if err != nil {
		return nil, err
	}
	if err := writePID(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return f, nil
}

// readPID reads the PID in a lock's file; 0 if there is none.
func readPID(path string) int {
	data, _ := os.ReadFile(path)
	pid, _ := strconv.Atoi(strings.TrimSpace(string(data)))
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
