package reset

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
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/state"
)

// How long processes may take to end: the front stops its children in order, all others are killed.
const (
	stopTime = 10 * time.Second
	killTime = 10 * time.Second
)

// process is one line of the process table.
type process struct {
	pid, parent int
	name        string // of its executable's file, at most 15 letters
	args        []string
	started     uint64 // clock ticks since boot
}

// findProcesses lists the front, child processes without a front, and the pods by their shims, in the order of killing.
func findProcesses(_ context.Context, m *machine) ([]Item, error) {
	table, err := m.processTable()
	if err != nil {
		return nil, err
	}
	for pid := os.Getpid(); pid > 0; { // we, and who called us: it may be a front that ends an ephemeral cluster
		parent := table[pid].parent
		delete(table, pid)
		pid = parent
	}
	var items []Item
	claimed := map[int]bool{}
	claim := func(pid int) (all []process) {
		for _, p := range family(table, pid) {
			if !claimed[p.pid] {
				claimed[p.pid] = true
				all = append(all, p)
			}
		}
		return all
	}
	if front := m.front(table); front != 0 {
		p := table[front]
		claimed[front] = true
		items = append(items, Item{Kind: "process", Name: fmt.Sprintf("coracle (pid %d)", p.pid), vital: true,
			remove: func(ctx context.Context) error { return stopFront(ctx, p) }})
	}
	for _, p := range sorted(table) {
		if m.isChild(p) && !claimed[p.pid] {
			claimed[p.pid] = true
			items = append(items, Item{Kind: "process", Name: fmt.Sprintf("coracle's process %s (pid %d)", childName(p), p.pid), vital: true,
				remove: func(ctx context.Context) error { return kill(ctx, p) }})
		}
	}
	for _, p := range sorted(table) {
		if m.isShim(p) && !claimed[p.pid] {
			items = append(items, podItem(m.podName(p), claim(p.pid)))
		}
	}
	for _, pid := range m.inOurCgroups() {
		if p, ok := table[pid]; ok && !claimed[pid] {
			claimed[pid] = true
			items = append(items, Item{Kind: "process", Name: fmt.Sprintf("%s (pid %d)", p.name, pid), Detail: "in a pod's cgroup",
				remove: func(ctx context.Context) error { return kill(ctx, p) }})
		}
	}
	return items, nil
}

// podItem is a shim with its descendants. They are killed together, because the children of a dead shim become those of init.
func podItem(name string, all []process) Item {
	return Item{Kind: "pod", Name: name, Detail: fmt.Sprintf("%d processes", len(all)),
		remove: func(ctx context.Context) error { return kill(ctx, all...) }}
}

// isChild recognises child processes of a front by the file that the front gives them.
func (m *machine) isChild(p process) bool {
	return slices.Contains(p.args, m.dirs.Resolved()) && childName(p) != "" && m.sameMounts(p)
}

// childName returns the name of a child process in its command line; "" for other processes.
func childName(p process) string {
	for _, name := range []string{state.ControlPlane, state.Node} {
		if slices.Contains(p.args, name) {
			return name
		}
	}
	return ""
}

// isShim recognises the shims of coracle's containerd by its socket.
func (m *machine) isShim(p process) bool {
	i := slices.Index(p.args, "-address")
	return strings.HasPrefix(p.name, "containerd-shim") && i >= 0 && i+1 < len(p.args) &&
		p.args[i+1] == m.dirs.ContainerdSocket() && m.sameMounts(p)
}

// sameMounts reports whether a process is in the mount namespace of this process. A coracle in a container on the machine is
// visible and uses the same paths, but they are other files.
func (m *machine) sameMounts(p process) bool {
	ours, err := os.Readlink(filepath.Join(m.proc, "self", "ns", "mnt"))
	if err != nil {
		return false
	}
	its, err := os.Readlink(filepath.Join(m.proc, strconv.Itoa(p.pid), "ns", "mnt"))
	return err == nil && its == ours
}

// podName returns the name of a shim's pod, or the sandbox's identifier.
func (m *machine) podName(shim process) string {
	i := slices.Index(shim.args, "-id")
	if i < 0 || i+1 >= len(shim.args) {
		return fmt.Sprintf("(shim with pid %d)", shim.pid)
	}
	id := shim.args[i+1]
	for _, b := range m.seen.containers {
		if b.id == id && b.pod != "" {
			return b.pod
		}
	}
	return id
}

// front returns the process that holds the lock on the data directory, or that is the front according to its state file.
func (m *machine) front(table map[int]process) int {
	if pid := lockHolder(m.proc, m.dirs.Lock()); table[pid].pid != 0 {
		return pid
	}
	p, ok, err := state.Read(m.dirs, state.Front)
	if err != nil || !ok {
		return 0
	}
	if have, ok := table[p.PID]; ok && have.started == p.StartTicks && m.sameMounts(have) {
		return p.PID
	}
	return 0
}

// lockHolder returns the process that holds a flock on the file according to /proc/locks; 0 for none.
func lockHolder(proc, path string) int {
	var file unix.Stat_t
	if unix.Stat(path, &file) != nil {
		return 0
	}
	locks, err := os.ReadFile(filepath.Join(proc, "locks"))
	if err != nil {
		return 0
	}
	want := fmt.Sprintf("%02x:%02x:%d", unix.Major(file.Dev), unix.Minor(file.Dev), file.Ino)
	for line := range strings.Lines(string(locks)) {
		fields := strings.Fields(line) // 1: FLOCK ADVISORY WRITE 1234 fe:01:5678 0 EOF
		if len(fields) > 5 && fields[1] == "FLOCK" && fields[5] == want {
			pid, _ := strconv.Atoi(fields[4])
			return pid
		}
	}
	return 0
}

// stopFront stops coracle in order: through systemd if it runs as a service.
func stopFront(ctx context.Context, p process) error {
	if p.pid == 1 {
		return errors.New("it is the first process of this container: remove the container instead")
	}
	if unit := systemdUnit(ctx, p.pid); unit != "" {
		return systemctl(ctx, "stop", unit)
	}
	if err := syscall.Kill(p.pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	if waitGone(ctx, p, stopTime) {
		return nil
	}
	return kill(ctx, p) // its child processes die with it
}

// kill kills processes and waits until they have ended.
func kill(ctx context.Context, all ...process) error {
	for _, p := range all {
		if now, err := state.StartTicks(p.pid); err != nil || now != p.started {
			continue // gone, and perhaps somebody else's number by now
		}
		if err := syscall.Kill(p.pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("killing pid %d: %w", p.pid, err)
		}
	}
	for _, p := range all {
		if !waitGone(ctx, p, killTime) {
			return fmt.Errorf("pid %d (%s) does not die: it hangs inside the kernel", p.pid, p.name)
		}
	}
	return nil
}

// waitGone waits until a process has ended, even if its parent has not waited for it.
func waitGone(ctx context.Context, p process, limit time.Duration) bool {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		return errors.Is(err, unix.ESRCH)
	}
	defer unix.Close(fd)
	if now, err := state.StartTicks(p.pid); err != nil || now != p.started {
		return true
	}
	const slice = 200 * time.Millisecond // how often ctx is looked at
	for until := time.Now().Add(limit); time.Now().Before(until) && ctx.Err() == nil; {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(slice.Milliseconds()))
		if n > 0 {
			return true
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return false
		}
	}
	return false
}

// processTable lists the running processes, without zombies.
func (m *machine) processTable() (map[int]process, error) {
	dirs, err := os.ReadDir(m.proc)
	if err != nil {
		return nil, err
	}
	table := map[int]process{}
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil {
			continue
		}
		if p, ok := readProcess(filepath.Join(m.proc, d.Name()), pid); ok {
			table[pid] = p
		}
	}
	return table, nil
}

func readProcess(dir string, pid int) (process, bool) {
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return process{}, false
	}
	open, shut := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 0 || shut < open {
		return process{}, false
	}
	fields := strings.Fields(string(stat[shut+1:]))
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return process{}, false
	}
	p := process{pid: pid, name: string(stat[open+1 : shut])}
	p.parent, _ = strconv.Atoi(fields[1])
	p.started, _ = strconv.ParseUint(fields[19], 10, 64)
	if line, err := os.ReadFile(filepath.Join(dir, "cmdline")); err == nil {
		p.args = strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")
	}
	return p, true
}

// family returns a process with all its descendants, itself first.
func family(table map[int]process, pid int) []process {
	out := []process{table[pid]}
	for _, p := range sorted(table) {
		if p.parent == pid {
			out = append(out, family(table, p.pid)...)
		}
	}
	return out
}

func sorted(table map[int]process) []process {
	out := make([]process, 0, len(table))
	for _, p := range table {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b process) int { return a.pid - b.pid })
	return out
}
