package containerd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/containerd/api/events"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/log"
	"github.com/containerd/typeurl/v2"
	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"

	"github.com/coracle-dev/coracle/pkg/core/process"
)

// scope is the unit of systemd that holds the shims of all pods. In coracle's own service systemd would complain, at each of its starts,
// of processes that were left over. The scope ends with its last process.
const scope = "coracle-pods.scope"

// scopeRetry is when shims are looked for again after systemd has failed to move one.
const scopeRetry = 30 * time.Second

// keepShimsInScope moves all shims into their scope, and then each new one, until ctx is done.
func (c Containerd) keepShimsInScope(ctx context.Context) {
	containers, err := client.New(c.Socket)
	if err != nil {
		log.L.WithError(err).Warn("moving shims into a scope of systemd")
		return
	}
	defer containers.Close()
	created, ended := containers.Subscribe(ctx, `topic=="/tasks/create"`)
	var retry <-chan time.Time
	said := ""
	candidates, err := process.All("/proc")
	for {
		if shims := c.outsideScope("/proc", candidates); err == nil && len(shims) > 0 {
			err = moveToScope(ctx, shims)
		}
		if err != nil && ctx.Err() == nil {
			if said != err.Error() {
				said = err.Error()
				log.L.WithError(err).Warnf("moving shims into %s; trying again", scope)
			}
			retry = time.After(scopeRetry)
		}
		select {
		case <-ctx.Done():
			return
		case <-ended: // containerd stops
			return
		case <-retry:
			candidates, err = process.All("/proc")
		case e := <-created:
			candidates, err = keeperOf(e.Event)
		}
	}
}

// keeperOf returns the process that keeps a task which was created, the shim: it is the parent of a container's first process, and the process
// of a sandbox's thread (see package pauseless).
func keeperOf(event typeurl.Any) ([]process.Process, error) {
	var task events.TaskCreate
	if err := typeurl.UnmarshalTo(event, &task); err != nil {
		return nil, fmt.Errorf("reading an event of containerd: %w", err)
	}
	first, err := process.Find(int(task.Pid))
	keeper := threadGroup(first.PID)
	if keeper == first.PID {
		keeper = first.Parent
	}
	shim, errShim := process.Read(filepath.Join("/proc", strconv.Itoa(keeper)))
	if err != nil || errShim != nil {
		return nil, nil // it has ended
	}
	return []process.Process{shim}, nil
}

// threadGroup returns the PID of the process that has a thread, see proc_pid_status(5), or 0 if the thread has ended.
func threadGroup(tid int) int {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid))
	_, text, _ := strings.Cut(string(status), "\nTgid:")
	text, _, _ = strings.Cut(text, "\n")
	pid, _ := strconv.Atoi(strings.TrimSpace(text))
	return pid
}

// outsideScope returns the PIDs of those of the processes that are shims and not in the scope.
func (c Containerd) outsideScope(proc string, candidates []process.Process) (pids []uint32) {
	for _, p := range candidates {
		if !c.isShim(p) || !p.SharesMounts(proc) {
			continue
		}
		cgroups, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(p.PID), "cgroup"))
		if err == nil && !strings.Contains(string(cgroups), "/"+scope) {
			pids = append(pids, uint32(p.PID))
		}
	}
	return pids
}

// moveToScope has systemd move processes into the scope, which it makes if there is none. Delegate keeps systemd from ending all
// when the kernel has ended one for want of memory, and without default dependencies a shutdown ends shims only after coracle.
func moveToScope(ctx context.Context, pids []uint32) error {
	const limit = 10 * time.Second
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	conn, err := dbus.NewSystemdConnectionContext(ctx)
	if err != nil {
		return fmt.Errorf("connecting to systemd: %w", err)
	}
	defer conn.Close()
	if conn.AttachProcessesToUnit(ctx, scope, "", pids) == nil {
		return nil
	}
	done := make(chan string, 1)
	_, err = conn.StartTransientUnitContext(ctx, scope, "fail", []dbus.Property{
		dbus.PropDescription("Shims of coracle's pods"),
		dbus.PropPids(pids...),
		{Name: "Delegate", Value: godbus.MakeVariant(true)},
		{Name: "DefaultDependencies", Value: godbus.MakeVariant(false)},
		{Name: "CollectMode", Value: godbus.MakeVariant("inactive-or-failed")},
	}, done)
	if err != nil {
		return fmt.Errorf("starting the unit: %w", err)
	}
	select {
	case result := <-done:
		if result != "done" {
			return fmt.Errorf("starting the unit: systemd's job ended as %s", result)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("starting the unit: %w", ctx.Err())
	}
}
