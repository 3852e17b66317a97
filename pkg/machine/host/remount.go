package host

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"
)

// RemountWritable makes file systems of the kernel writable that container engines mount read-only and that a node writes
// to: cgroups and, if permitted, kernel settings (/proc/sys, /sys). It changes this mount namespace only. On a machine and
// in a privileged container nothing is read-only and it does nothing. It runs before anything looks at the machine.
func RemountWritable() error {
	mounts, err := mountinfo.GetMounts(nil)
	if err != nil {
		return fmt.Errorf("reading the mount table: %w; /proc has to be mounted", err)
	}
	var wrong []error
	for _, m := range readOnlyMounts(mounts) {
		err := unix.Mount("", m.Mountpoint, "", unix.MS_REMOUNT|unix.MS_BIND|flags(m), "")
		if err == nil && readOnlySysfs(m) { // /sys belongs to this network namespace only
			err = unix.Mount("", m.Mountpoint, "", unix.MS_REMOUNT|flags(m), "")
		}
		switch {
		case err == nil:
		case isCgroup(m):
			wrong = append(wrong, fmt.Errorf("pods need cgroups, and %s is mounted read-only: %w; start the container with "+
				"--privileged, or with --cap-add SYS_ADMIN where no security module forbids mounts "+
				"(--security-opt apparmor=unconfined)", m.Mountpoint, err))
		default:
			logrus.WithField("component", "host").WithError(err).Debugf("%s stays read-only", m.Mountpoint)
		}
	}
	return errors.Join(wrong...)
}

// readOnlyMounts lists the mounts of the kernel's file systems that are read-only. A tmpfs at /sys/fs/cgroup is not one of
// them: it holds only mount points, and is read-only on many machines.
func readOnlyMounts(mounts []*mountinfo.Info) []*mountinfo.Info {
	return slices.DeleteFunc(topmost(mounts), func(m *mountinfo.Info) bool {
		wanted := isCgroup(m) || m.FSType == "sysfs" && m.Mountpoint == "/sys" || m.FSType == "proc" && m.Mountpoint == "/proc/sys"
		return !wanted || !readOnlySysfs(m) && !option(m.Options, "ro")
	})
}

// readOnlySysfs reports whether the file system is read-only, not only the mount.
func readOnlySysfs(m *mountinfo.Info) bool { return m.FSType == "sysfs" && option(m.VFSOptions, "ro") }

func isCgroup(m *mountinfo.Info) bool {
	below := m.Mountpoint == "/sys/fs/cgroup" || strings.HasPrefix(m.Mountpoint, "/sys/fs/cgroup/")
	return below && (m.FSType == "cgroup" || m.FSType == "cgroup2")
}

// option reports whether mount options, separated by commas, have one of the given name.
func option(options, name string) bool { return slices.Contains(strings.Split(options, ","), name) }

// flags returns the mount's options other than "ro"; a remount without them would clear them.
func flags(m *mountinfo.Info) (flags uintptr) {
	for name, flag := range map[string]uintptr{
		"nosuid": unix.MS_NOSUID, "nodev": unix.MS_NODEV, "noexec": unix.MS_NOEXEC,
		"noatime": unix.MS_NOATIME, "nodiratime": unix.MS_NODIRATIME, "relatime": unix.MS_RELATIME,
	} {
		if option(m.Options, name) {
			flags |= flag
		}
	}
	return flags
}
