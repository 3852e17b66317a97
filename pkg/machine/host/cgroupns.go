package host

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// UnshareCgroup gives the init process of a container a cgroup namespace, so that the container's own cgroup is the root for
// it and its children. Without one, /proc/PID/cgroup has the names outside the container: the kubelet and runc would look
// for pods' cgroups at paths that do not exist inside, and with cgroup v2 create them next to the container's cgroup. If a
// namespace is needed, it executes the program again with args and does not return. Only PID 1 may call it.
func UnshareCgroup(args []string) error {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil || !below(string(own)) { // without /proc this is the init of a machine
		return nil
	}
	runtime.LockOSThread() // only the thread that calls exec remains
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return nil // check.Start reports which capability is missing
	}
	const root = "/sys/fs/cgroup"
	if cgroupV2(root) { // the present mount shows all cgroups of the machine
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
