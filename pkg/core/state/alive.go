package state

import (
	"fmt"
	"os"
	"strings"

	"github.com/coracle-dev/coracle/pkg/core/process"
)

// StartTicks returns when a process was started, in clock ticks since boot. Together with the pid it identifies one process,
// because the kernel reuses pids. It returns an error for a process that has ended, even if its parent has not waited for it.
func StartTicks(pid int) (uint64, error) {
	p, err := process.Find(pid)
	if err == nil && p.Ended() {
		err = fmt.Errorf("process %d has ended", pid)
	}
	return p.Started, err
}

// BootID returns the kernel's identifier of this boot, "" if it has none.
func BootID() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
}

// Alive reports whether the process that wrote p still runs.
func (p Process) Alive() bool {
	ticks, err := StartTicks(p.PID)
	return err == nil && ticks == p.StartTicks
}
