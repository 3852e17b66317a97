package supervise

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/process"
)

// mount is a file system that most machines and containers mount before their first process runs.
type mount struct {
	target, fstype, data string
	flags                uintptr
	missing              func(target string) bool
}

// mounts lists the file systems in the order in which they are mounted.
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

// foreign reports whether /proc is not mounted, or is of another PID namespace.
func foreign(target string) bool {
	self, err := os.Readlink(target + "/self")
	return err != nil || self != strconv.Itoa(os.Getpid())
}

// lacks reports whether a directory has no entry of that name.
func lacks(name string) func(string) bool {
	return func(target string) bool { return notThere(target + "/" + name) }
}

// isOf reports whether a directory is of the same file system as its parent, so that nothing is mounted on it.
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

// Mount mounts the file systems that PID 1 needs, except those that are mounted already.
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

// How many files a process may open. Go programs raise the soft limit to the hard one for themselves and give
// their children the soft one that they were started with: so our child processes get the many files that the watches,
// connections and logs of all pods need, and pods get the soft limit that programs expect to find.
const (
	hardFiles = 1 << 20
	softFiles = 1024
)

// oomScore makes the kernel look elsewhere first when memory runs out: without these processes nothing on the node
// is looked after. -1000 would forbid it to end one that leaks.
const oomScore = -998

// RaiseLimits gives this process and those that it will start what a server needs, as far as the machine permits.
func RaiseLimits() {
	var files syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) == nil {
		more := syscall.Rlimit{Cur: softFiles, Max: max(hardFiles, files.Max)}
		if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &more) != nil {
			more.Max, more.Cur = files.Max, min(softFiles, files.Max)
			_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &more)
		}
	}
	for _, resource := range []int{unix.RLIMIT_NPROC, unix.RLIMIT_CORE} {
		_ = unix.Setrlimit(resource, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY})
	}
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte(strconv.Itoa(oomScore)), 0) // needs CAP_SYS_RESOURCE
}

// EndOthers ends all other processes in the PID namespace of this process, which is its init: with SIGTERM, and after grace
// with SIGKILL.
func EndOthers(grace time.Duration) {
	_ = unix.Kill(-1, unix.SIGTERM)
	for deadline := time.Now().Add(grace); others() && time.Now().Before(deadline); {
		<-time.After(10 * time.Millisecond)
	}
	_ = unix.Kill(-1, unix.SIGKILL)
}

// others reports whether any process but this one runs.
func others() bool {
	all, _ := process.All("/proc")
	return slices.ContainsFunc(all, func(p process.Process) bool { return p.PID != os.Getpid() })
}
