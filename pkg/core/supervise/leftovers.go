package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/filelock"
	"github.com/coracle-dev/coracle/pkg/core/process"
)

// EndLeftovers kills child processes of an earlier front: processes with a program's arguments, for which lock is
// the same file (a coracle in a container may have the same arguments). It returns once
// they have ended, so that their files and ports are free. The caller holds the lock. Such processes are rare, because the
// kernel kills children with their front. But it does not wait for their end, so EndLeftovers also waits for processes that
// are about to end.
func EndLeftovers(lock string, programs []Program) (killed []int, err error) {
	ours, err := os.Stat(lock)
	if err != nil {
		return nil, fmt.Errorf("looking for processes of an earlier coracle: %w", err)
	}
	all, err := process.All("/proc")
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		switch {
		case p.PID == os.Getpid():
		case len(p.Args) == 0: // a kernel thread, or a process that is about to end
			if slices.ContainsFunc(programs, func(program Program) bool { return comm(program.Path) == p.Name }) {
				_ = p.Wait(context.Background(), endTimeout) // it may be another program's
			}
		case slices.ContainsFunc(programs, func(program Program) bool { return slices.Equal(p.Args[1:], program.Args) }):
			theirs, statErr := os.Stat(fmt.Sprintf("/proc/%d/root%s", p.PID, lock))
			if statErr != nil || !os.SameFile(ours, theirs) {
				continue
			}
			killed = append(killed, p.PID)
			if err := errors.Join(p.Signal(unix.SIGKILL), p.Wait(context.Background(), endTimeout)); err != nil {
				return killed, fmt.Errorf("ending process %d, which an earlier coracle has left: %w", p.PID, err)
			}
		}
	}
	return killed, nil
}

// comm returns the kernel's name of a process that runs the file at path.
func comm(path string) string {
	const most = 15
	name := filepath.Base(path)
	return name[:min(len(name), most)]
}

// endTimeout bounds the wait for a killed process. The kernel needs seconds to free a lot of memory.
const endTimeout = 10 * time.Second

// HeldError is the error of a lock that another process holds.
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

// Lock takes the lock at path until the returned file is closed or this process ends, and writes this process's PID
// into it. If another process holds the lock, the error is a HeldError.
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
