package check

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// cgroups looks for the controllers that the kubelet needs, and whether cgroups can be made.
func cgroups(_ context.Context, m *Machine) []Verdict {
	found := controllers()
	if m.starting || slices.ContainsFunc(found, func(v Verdict) bool { return v.Result == Fail }) {
		return found
	}
	dir, version := "/sys/fs/cgroup/memory", "v1"
	if m.exists("/sys/fs/cgroup/cgroup.controllers") {
		dir, version = "/sys/fs/cgroup", "v2"
	}
	fine := Else(found, Okf("%s, with the controllers that are needed", version))
	if m.Running { // it makes cgroups all the time, and its kubelet would notice one more
		return fine
	}
	err := makeCgroup(dir)
	if errors.Is(err, unix.EROFS) {
		err = m.unlocked(dir, func() error { return makeCgroup(dir) })
	}
	if err != nil {
		return append(found, Failf("in a container, give it cgroups that it may write: --privileged, or --cap-add SYS_ADMIN",
			"no cgroup can be made in %s: %v", dir, err)...)
	}
	return fine
}

// makeCgroup makes a cgroup and removes it.
func makeCgroup(dir string) error {
	try, err := os.MkdirTemp(dir, "coracle-check-")
	if err != nil {
		return errors.Unwrap(err) // without the name that was tried
	}
	return os.Remove(try)
}

// unlocked runs do in a mount namespace in which a mount is writable that a container engine has made read-only, as
// coracle does when it starts.
func (m *Machine) unlocked(point string, do func() error) error {
	return apart(unix.CLONE_NEWNS, func() error {
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return err
		}
		if err := unix.Mount("", point, "", unix.MS_REMOUNT|unix.MS_BIND, ""); err != nil {
			return err
		}
		return do()
	})
}

// neededControllers are the cgroup controllers without which the kubelet does not start.
var neededControllers = []string{"cpu", "cpuset", "memory", "pids"}

// controllers looks for cgroups and their controllers. It returns nil if all is well.
func controllers() []Verdict {
	var fs unix.Statfs_t
	if err := unix.Statfs("/sys/fs/cgroup", &fs); err != nil {
		return Failf("the kernel has to have cgroups, and they have to be mounted there", "looking at /sys/fs/cgroup: %v", err)
	}
	if fs.Type == unix.CGROUP2_SUPER_MAGIC {
		have, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers")
		if err != nil {
			return Failf("", "looking for cgroup controllers: %v", err)
		}
		return judgeControllers(strings.Fields(string(have)))
	}
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup"))
	if err != nil {
		return Failf("", "looking for mounted cgroups: %v", err)
	}
	if missing := judgeControllers(v1Controllers(mounts)); missing != nil {
		return missing
	}
	return Warnf("boot the kernel with systemd.unified_cgroup_hierarchy=1 to change to v2",
		"this machine uses cgroup v1, which Kubernetes is about to give up")
}

// v1Controllers lists the controllers of mounted hierarchies, among other mount options.
func v1Controllers(mounts []*mountinfo.Info) (have []string) {
	for _, m := range mounts {
		have = append(have, strings.Split(m.VFSOptions, ",")...)
	}
	return have
}

func judgeControllers(have []string) []Verdict {
	var missing []string
	for _, c := range neededControllers {
		if !slices.Contains(have, c) {
			missing = append(missing, c)
		}
	}
	if missing == nil {
		return nil
	}
	return Failf("add them to the kernel's command line (as in cgroup_enable=memory), "+
		"or give the container its own cgroup namespace (--cgroupns=private)", "cgroup controllers are missing: %s", strings.Join(missing, ", "))
}
