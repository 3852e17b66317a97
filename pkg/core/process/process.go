// Package process reads the kernel's table of processes, and ends processes.
package process

import (
	"bytes"
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
)

// Process is a process, or a thread, as it was when it was read.
type Process struct {
	PID, Parent int
	Name        string        // of its executable's file, at most 15 bytes
	State       byte          // the kernel's letter, such as S for sleeping
	CPU         time.Duration // used by all its threads
	// Started is the time of its start in clock ticks since boot. With PID it identifies one process, because the kernel
	// reuses PIDs.
	Started uint64
	// Args is empty for a thread of the kernel, and for a process that is about to end.
	Args []string
}

// tick is the unit of times in /proc/PID/stat. Linux fixes it for programs, whatever the kernel's own tick is.
const tick = time.Second / 100

// Read reads a process from its directory, /proc/PID except in tests.
func Read(dir string) (Process, error) {
	p, err := readStat(dir)
	if args, _ := os.ReadFile(filepath.Join(dir, "cmdline")); err == nil && len(args) > 0 {
		p.Args = strings.Split(strings.TrimSuffix(string(args), "\x00"), "\x00")
	}
	return p, err
}

// readStat reads all but Args.
func readStat(dir string) (Process, error) {
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return Process{}, err
	}
	// The second field is the name in parentheses, which may hold anything. Fields after it are counted from 0 here.
	begin, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	fields := strings.Fields(string(stat[end+1:]))
	if begin < 0 || end < begin || len(fields) < 20 {
		return Process{}, fmt.Errorf("%s/stat has an unknown form", dir)
	}
	number := func(field int) uint64 {
		n, _ := strconv.ParseUint(fields[field], 10, 64) // the kernel writes numbers there
		return n
	}
	pid, _ := strconv.Atoi(filepath.Base(dir))
	return Process{PID: pid, Name: string(stat[begin+1 : end]), State: fields[0][0], Parent: int(number(1)),
		CPU: time.Duration(number(11)+number(12)) * tick, Started: number(19)}, nil
}

// Find reads the process with the given PID, without Args: the kernel takes a lock of the process to read them.
func Find(pid int) (Process, error) { return readStat(fmt.Sprintf("/proc/%d", pid)) }

// All reads all processes in proc, /proc except in tests, in the order of their PIDs.
func All(proc string) (all []Process, err error) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, fmt.Errorf("reading the process table: %w", err)
	}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		if p, err := Read(filepath.Join(proc, e.Name())); err == nil { // otherwise it has just ended
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b Process) int { return a.PID - b.PID })
	return all, nil
}

// Tree returns a process and its descendants, parents first.
func Tree(all []Process, pid int) (tree []Process) {
	for _, p := range all {
		switch pid {
		case p.PID:
			tree = slices.Insert(tree, 0, p)
		case p.Parent:
			tree = append(tree, Tree(all, p.PID)...)
		}
	}
	return tree
}

// Ended reports whether the process had ended when it was read, and its parent had not waited for it.
func (p Process) Ended() bool { return p.State == 'Z' || p.State == 'X' }

// Value returns the argument after the given flag, "" if there is none.
func (p Process) Value(flag string) string {
	if i := slices.Index(p.Args, flag); i >= 0 && i+1 < len(p.Args) {
		return p.Args[i+1]
	}
	return ""
}

// SharesMounts reports whether a process in proc is in the mount namespace of this process. A process in a container may use
// the same paths, but they are other files.
func (p Process) SharesMounts(proc string) bool {
	own, errOwn := os.Readlink(filepath.Join(proc, "self", "ns", "mnt"))
	its, err := os.Readlink(filepath.Join(proc, strconv.Itoa(p.PID), "ns", "mnt"))
	return errOwn == nil && err == nil && its == own
}

// runs reports whether the process is still there.
func (p Process) runs() bool {
	now, err := Find(p.PID)
	return err == nil && now.Started == p.Started
}

// Signal sends a signal. It is no error if the process has ended.
func (p Process) Signal(signal unix.Signal) error {
	if !p.runs() {
		return nil
	}
	if err := unix.Kill(p.PID, signal); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("sending %s to pid %d: %w", unix.SignalName(signal), p.PID, err)
	}
	return nil
}

// Wait waits until all threads of the process have ended, even if its parent does not wait for it, but not longer than limit.
func (p Process) Wait(ctx context.Context, limit time.Duration) error {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if !p.runs() { // the descriptor may be of another process
		return nil
	}
	const pause = 200 * time.Millisecond // between looks at ctx
	for until := time.Now().Add(limit); ; {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(pause.Milliseconds()))
		switch {
		case n > 0:
			return nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case time.Now().After(until):
			return fmt.Errorf("pid %d (%s) is still there %s later", p.PID, p.Name, limit)
		}
	}
}
