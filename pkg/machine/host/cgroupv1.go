package host

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"
)

// MountHierarchies mounts, in a container, the machine's cgroup v1 hierarchies that the container engine has not mounted, for
// example because they were created after the engine started. runc puts pods into all of them, and the kubelet reads them.
// PID 1 calls it after UnshareCgroup, so that each mount shows the container's own cgroups. Hierarchies that cannot be
// mounted are left out.
func MountHierarchies() {
	const root = "/sys/fs/cgroup"
	own, errOwn := os.ReadFile("/proc/self/cgroup")
	mounts, errMounts := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup"))
	if errOwn != nil || errMounts != nil || cgroupV2(root) || below(string(own)) {
		return
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_RELATIME
	for _, h := range unmounted(string(own), mounts) {
		dir := filepath.Join(root, strings.TrimPrefix(h, "name="))
		err := os.MkdirAll(dir, 0o755)
		if err == nil {
			err = unix.Mount("cgroup", dir, "cgroup", flags, h)
		}
		if err != nil {
			logrus.WithField("component", "host").WithError(err).Debugf("the cgroups of %s are not seen", h)
		}
	}
}

// unmounted lists the cgroup v1 hierarchies in the text of /proc/PID/cgroup that are not among the mounts. Each has the form
// of mount's option: its controllers, or name=NAME.
func unmounted(cgroups string, mounts []*mountinfo.Info) (list []string) {
	for line := range strings.Lines(cgroups) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) < 3 || fields[1] == "" { // cgroup v2 has no names
			continue
		}
		first, _, _ := strings.Cut(fields[1], ",")
		if !slices.ContainsFunc(mounts, func(m *mountinfo.Info) bool { return option(m.VFSOptions, first) }) {
			list = append(list, fields[1])
		}
	}
	return list
}
