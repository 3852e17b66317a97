package state

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// StartTicks returns when a process was started, in clock ticks since boot. Together with the pid it identifies one process,
// because the kernel reuses pids. It returns an error for a process that has ended, even if its parent has not waited for it.
func StartTicks(pid int) (uint64, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The second field is the command's name in parentheses and may hold anything.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	if state := fields[0][0]; state == 'Z' || state == 'X' { // field 3
		return 0, fmt.Errorf("process %d has ended", pid)
	}
	return strconv.ParseUint(string(fields[19]), 10, 64) // field 22
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
