package supervise

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// mount is a file system that a machine or a container has, as a rule, before its first process runs.
type mount struct {
	target, fstype, data string
	flags                uintptr
	missing              func(target string) bool
}

// mounts are what init sees to, in order.
var mounts = [...]mount{
	{"/proc", "proc", "", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, foreign},
	{"/sys", "sysfs", "", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, lacks("kernel")},
	{"/dev", "devtmpfs", "mode=0755", unix.MS_NOSUID, lacks("null")},
	{"/dev/pts", "devpts", "mode=0620,ptmxmode=0666", unix.MS_NOSUID | unix.MS_NOEXEC, lacks("ptmx")},
	{"/dev/shm", "tmpfs", "mode=1777", unix.MS_NOSUID | unix.MS_NODEV, isOf("/dev")},
	{"/run", "tmpfs", "mode=0755", unix.MS_NOSUID | unix.MS_NODEV, isOf("/")},
	{"/tmp", "tmpfs", "mode=1777", unix.MS_NOSUID | unix.MS_NODEV, notThere},
	{"/sys/fs/cgroup", "cgroup2", "", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, isOf("/sys")},
}

// foreign finds a /proc that is not there, or is that of another PID namespace than ours.
func foreign(target string) bool {
	self, err := os.Readlink(target + "/self")
	return err != nil || self != strconv.Itoa(os.Getpid())
}

// lacks finds a directory that has no entry of that name.
func lacks(name string) func(string) bool {
	return func(target string) bool { return notThere(target + "/" + name) }
}

// isOf finds a directory that is still of the same file system as the one it is in.
func isOf(parent string) func(string) bool {
	return func(target string) bool {
		var t, p unix.Stat_t
		if unix.Stat(target, &t) != nil || unix.Stat(parent, &p) != nil {
			return notThere(target)
		}
		return t.Dev == p.Dev
	}
}

func notThere(path string) bool {
	_, err := os.Lstat(path)
	return os.IsNotExist(err)
}

// Mount gives PID 1 the file systems that it would have found mounted on a machine with an init of its own. What
// is there already stays as it is.
func Mount() error {
	for _, m := range mounts {
		if !m.missing(m.target) {
			continue
		}
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return fmt.Errorf("making %s: %w", m.target, err)
		}
		if err := unix.Mount(m.fstype, m.target, m.fstype, m.flags, m.data); err != nil {
			return fmt.Errorf("mounting %s on %s: %w", m.fstype, m.target, err)
		}
	}
	return nil
}
