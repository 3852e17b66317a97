package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/process"
)

// Processes returns, of a table of processes, those of this node's gateway: the one that serves, and those that it has replaced and that still have
// connections. They outlive the front. One is known by its root directory, or its working directory where it could not change its root; the same
// arguments may be those of a coracle in a container.
func (d Dir) Processes(proc string, table []process.Process) (out []process.Process) {
	files, err := os.Stat(string(d.Files()))
	if err != nil {
		return nil
	}
	for _, p := range table {
		if len(p.Args) < 3 || p.Args[1] != Program || p.Args[2] != string(d) {
			continue
		}
		for _, link := range []string{"root", "cwd"} {
			if at, err := os.Stat(fmt.Sprintf("%s/%d/%s", proc, p.PID, link)); err == nil && os.SameFile(files, at) {
				out = append(out, p)
				break
			}
		}
	}
	return out
}

// End kills all of Processes, and returns when they have ended.
func (d Dir) End() error {
	table, err := process.All("/proc")
	if err != nil {
		return err
	}
	return kill(d.Processes("/proc", table))
}

// MostProcesses bounds the processes besides one that starts: one that serves, and those that it has replaced, however often coracle is restarted
// while clients keep connections.
const MostProcesses = 4

// EndOldest kills the oldest of Processes if there are too many.
func (d Dir) EndOldest() error {
	table, err := process.All("/proc")
	if err != nil {
		return err
	}
	all := d.Processes("/proc", table)
	slices.SortStableFunc(all, func(a, b process.Process) int { return cmp.Compare(a.Started, b.Started) })
	return kill(all[:max(0, len(all)-MostProcesses)])
}

// kill kills processes, and returns when they have ended.
func kill(all []process.Process) error {
	var errs []error
	for _, p := range all {
		errs = append(errs, p.Signal(unix.SIGKILL))
	}
	for _, p := range all {
		errs = append(errs, p.Wait(context.Background(), endTimeout))
	}
	return errors.Join(errs...)
}

// endTimeout bounds the wait for a killed process.
const endTimeout = 10 * time.Second
