package reset

import (
	"cmp"
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

	"github.com/coracle-dev/coracle/pkg/core/process"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// How long processes may take to end: the front stops its children in order, all others are killed.
const (
	stopTime = 10 * time.Second
	killTime = 10 * time.Second
)

// findProcesses lists the front, child processes without a front, and the pods by their shims, in the order of killing.
func findProcesses(_ context.Context, m *machine) (items []Item, err error) {
	table, err := process.All(m.proc)
	if err != nil {
		return nil, err
	}
	parents := map[int]int{}
	for _, p := range table {
		parents[p.PID] = p.Parent
	}
	own := map[int]bool{} // this process and its callers, one of which may be a front that ends an ephemeral cluster
	for pid := os.Getpid(); pid > 0; pid = parents[pid] {
		own[pid] = true
	}
	table = slices.DeleteFunc(table, func(p process.Process) bool { return own[p.PID] || p.Ended() })
	claimed := map[int]bool{}
	add := func(item Item, remove func(context.Context, ...process.Process) error, all ...process.Process) {
		all = slices.DeleteFunc(all, func(p process.Process) bool { return claimed[p.PID] })
		for _, p := range all {
			claimed[p.PID] = true
		}
		if len(all) > 0 {
			item.remove = func(ctx context.Context) error { return remove(ctx, all...) }
			items = append(items, item)
		}
	}
	if front, ok := m.front(table); ok {
		add(Item{Kind: "process", Name: fmt.Sprintf("coracle (pid %d)", front.PID), vital: true}, stopFront, front)
	}
	for _, p := range table {
		if name := m.childName(p); name != "" {
			add(Item{Kind: "process", Name: fmt.Sprintf("coracle's process %s (pid %d)", name, p.PID), vital: true}, kill, p)
		}
	}
	for _, p := range table {
		if m.isShim(p) { // killed with its descendants, because the children of a dead shim become those of init
			tree := process.Tree(table, p.PID)
			add(Item{Kind: "pod", Name: m.podName(p), Detail: fmt.Sprintf("%d processes", len(tree))}, kill, tree...)
		}
	}
	for _, p := range gateway.Dir(m.dirs.Gateway()).Processes(m.proc, table) {
		add(Item{Kind: "process", Name: fmt.Sprintf("coracle's process %s (pid %d)", gateway.Program, p.PID), vital: true}, kill, p)
	}
	inPods := m.inOurCgroups()
	for _, p := range table {
		if inPods[p.PID] {
			add(Item{Kind: "process", Name: fmt.Sprintf("%s (pid %d)", p.Name, p.PID), Detail: "in a pod's cgroup"}, kill, p)
		}
	}
	return items, nil
}

// childName returns the name of a child process of a front, which has the file that the front gives to its children in its
// command line; "" for other processes.
func (m *machine) childName(p process.Process) string {
	for _, name := range []string{state.ControlPlane, state.Node} {
		if slices.Contains(p.Args, name) && slices.Contains(p.Args, m.dirs.Resolved()) && p.SharesMounts(m.proc) {
			return name
		}
	}
	return ""
}

// isShim recognises the shims of coracle's containerd by its socket.
func (m *machine) isShim(p process.Process) bool {
	return strings.HasPrefix(p.Name, "containerd-shim") && p.Value("-address") == m.dirs.ContainerdSocket() && p.SharesMounts(m.proc)
}

// podName returns the name of a shim's pod, or the sandbox's identifier.
func (m *machine) podName(shim process.Process) string {
	id := shim.Value("-id")
	for _, b := range m.seen.containers {
		if b.id == id && b.pod != "" {
			return b.pod
		}
	}
	return cmp.Or(id, fmt.Sprintf("(shim with pid %d)", shim.PID))
}

// front returns the process that holds the lock on the data directory, or that is the front according to its state file.
func (m *machine) front(table []process.Process) (front process.Process, ok bool) {
	holder := lockHolder(m.proc, m.dirs.Lock())
	recorded, _, _ := state.Read(m.dirs, state.Front) // zero if it cannot be read
	for _, p := range table {
		if p.PID == holder {
			return p, true
		}
		if p.PID == recorded.PID && p.Started == recorded.StartTicks && p.SharesMounts(m.proc) {
			front, ok = p, true
		}
	}
	return front, ok
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
func stopFront(ctx context.Context, front ...process.Process) error {
	p := front[0]
	if p.PID == 1 {
		return errors.New("it is the first process of this container: remove the container instead")
	}
	if unit := systemdUnit(ctx, p.PID); unit != "" {
		return systemctl(ctx, "stop", unit)
	}
	if err := p.Signal(unix.SIGTERM); err != nil {
		return err
	}
	if p.Wait(ctx, stopTime) == nil {
		return nil
	}
	return kill(ctx, p) // its child processes die with it
}

// kill kills processes and waits until they have ended.
func kill(ctx context.Context, all ...process.Process) error {
	for _, p := range all {
		if err := p.Signal(unix.SIGKILL); err != nil {
			return err
		}
	}
	for _, p := range all {
		if err := p.Wait(ctx, killTime); err != nil {
			return fmt.Errorf("killing pid %d, which hangs inside the kernel: %w", p.PID, err)
		}
	}
	return nil
}
