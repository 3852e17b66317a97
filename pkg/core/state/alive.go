package state

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// StartTicks tells when the process pid was started, in clock ticks since boot: with the pid it names one process
// for ever, where a pid alone may be somebody else's by now. A process that has ended is none, also before its
// parent has taken notice.
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

// BootID names this boot of the machine; "" where the kernel does not tell.
func BootID() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
}

// Alive reports whether the process that wrote p still runs.
func (p Process) Alive() bool {
	ticks, err := StartTicks(p.PID)
	return err == nil && ticks == p.StartTicks
}
