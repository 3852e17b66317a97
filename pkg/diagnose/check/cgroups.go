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

// cgroups checks that the controllers that the kubelet needs exist, and that cgroups can be made.
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
	if m.Running { // coracle makes cgroups all the time, and its kubelet would see the one that is made here
		return fine
	}
	err := makeCgroup(dir)
	if errors.Is(err, unix.EROFS) {
		err = m.writable(dir, func() error { return makeCgroup(dir) })
	}
	if err != nil {
		return append(found, Failf("in a container, make cgroups writable: --privileged, or --cap-add SYS_ADMIN",
			"no cgroup can be made in %s: %v", dir, err)...)
	}
	return fine
}

// makeCgroup makes a cgroup and removes it.
func makeCgroup(dir string) error {
	try, err := os.MkdirTemp(dir, "coracle-check-")
	if err != nil {
		return errors.Unwrap(err) // without the random name
	}
	return os.Remove(try)
}

// writable runs do in a mount namespace in which a mount is writable that a container engine has made read-only. coracle
// makes such mounts writable when it starts.
func (m *Machine) writable(point string, do func() error) error {
	return inNamespaces(unix.CLONE_NEWNS, func() error {
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

// controllers checks that cgroups and their controllers exist. It returns nil if they do.
func controllers() []Verdict {
	var fs unix.Statfs_t
	if err := unix.Statfs("/sys/fs/cgroup", &fs); err != nil {
		return Failf("use a kernel with cgroups, and mount them there", "looking at /sys/fs/cgroup: %v", err)
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
		"this machine uses cgroup v1, support of which ends in Kubernetes")
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
