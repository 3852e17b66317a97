package host

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Enclose makes the cgroup that a container's init is in the root of all cgroups that it and its children see. Without
// that, the names of cgroups are those outside: what manages pods would look for them where they are not, and under cgroup
// v2 would make them beside the container. Where there is something to do it runs this program again with args and does
// not return. It is for PID 1.
func Enclose(args []string) error {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil || !below(string(own)) { // no /proc: it is the init of a machine
		return nil
	}
	runtime.LockOSThread() // the thread that calls exec is the one that remains
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return nil // check.Start reports which capability is missing
	}
	const root = "/sys/fs/cgroup"
	if cgroupV2(root) { // what is mounted there shows all of the machine's
		const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_RELATIME
		if err := unix.Mount("cgroup2", root, "cgroup2", flags, ""); err != nil {
			return fmt.Errorf("mounting the container's own cgroups: %w; give it a cgroup namespace of its own (--cgroupns=private)", err)
		}
	}
	if err := syscall.Exec("/proc/self/exe", args, os.Environ()); err != nil {
		return fmt.Errorf("starting again with cgroups of our own: %w", err)
	}
	return nil
}

// below reports whether a process is in a cgroup below the root that it sees, by the text of /proc/PID/cgroup.
func below(cgroups string) bool {
	for line := range strings.Lines(cgroups) {
		if fields := strings.SplitN(strings.TrimSpace(line), ":", 3); len(fields) == 3 && fields[2] != "/" {
			return true
		}
	}
	return false
}
