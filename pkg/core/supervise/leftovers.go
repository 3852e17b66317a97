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

// EndLeftovers kills what an earlier front has left: processes that were called with a program's arguments and see
// the same file at lock as we do (those of a coracle in a container may look the same otherwise). It returns once
// they are gone, so that their files and ports are free. The caller holds the lock. Such processes are rare: the
// kernel kills children with their front. But it does not wait for their end, so those that are about to end are
// waited for as well.
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

// comm is the name that the kernel gives to a process that runs the file at path.
func comm(path string) string {
	const most = 15
	name := filepath.Base(path)
	return name[:min(len(name), most)]
}

// endTimeout is how long a killed process may take to go. Large ones take a while to give their memory back.
const endTimeout = 10 * time.Second

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
