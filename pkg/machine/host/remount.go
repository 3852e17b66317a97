package host

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"
)

// kernelMount is one of the kernel's own file systems as it is mounted.
type kernelMount struct {
	point, fstype string
	options       []string
	super         bool // the file system is read-only, not only the mount
}

// RemountWritable makes file systems of the kernel writable that container engines mount read-only and that a node writes
// to: cgroups and, if permitted, kernel settings (/proc/sys, /sys). It changes this mount namespace only. On a machine and
// in a privileged container nothing is read-only and it does nothing. It runs before anything looks at the machine.
func RemountWritable() error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("reading the mount table: %w; /proc has to be mounted", err)
	}
	var wrong []error
	for _, m := range readOnlyMounts(string(mounts)) {
		err := unix.Mount("", m.point, "", unix.MS_REMOUNT|unix.MS_BIND|m.flags(), "")
		if err == nil && m.super { // /sys belongs to this network namespace only
			err = unix.Mount("", m.point, "", unix.MS_REMOUNT|m.flags(), "")
		}
		switch {
		case err == nil:
		case m.cgroup():
			wrong = append(wrong, fmt.Errorf("pods need cgroups, and %s is mounted read-only: %w; start the container with "+
				"--privileged, or with --cap-add SYS_ADMIN where no security module forbids mounts "+
				"(--security-opt apparmor=unconfined)", m.point, err))
		default:
			logrus.WithField("component", "host").WithError(err).Debugf("%s stays read-only", m.point)
		}
	}
	return errors.Join(wrong...)
}

// readOnlyMounts lists the mounts of the kernel's file systems that are read-only, by the text of mountinfo. A tmpfs at
// /sys/fs/cgroup is not one of them: it holds only mount points, and is read-only on many machines.
func readOnlyMounts(mountinfo string) (list []kernelMount) {
	top := map[string]kernelMount{}
	var order []string
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		dash := slices.Index(fields, "-")
		if len(fields) < 7 || dash < 0 || dash+1 >= len(fields) {
			continue
		}
		m := kernelMount{point: fields[4], fstype: fields[dash+1], options: strings.Split(fields[5], ",")}
		m.super = m.fstype == "sysfs" && slices.Contains(strings.Split(fields[len(fields)-1], ","), "ro")
		if _, known := top[m.point]; !known {
			order = append(order, m.point)
		}
		top[m.point] = m // a later one at the same place covers it
	}
	for _, point := range order {
		m := top[point]
		wanted := m.cgroup() || m.fstype == "sysfs" && point == "/sys" || m.fstype == "proc" && point == "/proc/sys"
		if wanted && (m.super || slices.Contains(m.options, "ro")) {
			list = append(list, m)
		}
	}
	return list
}

func (m kernelMount) cgroup() bool {
	below := m.point == "/sys/fs/cgroup" || strings.HasPrefix(m.point, "/sys/fs/cgroup/")
	return below && (m.fstype == "cgroup" || m.fstype == "cgroup2")
}

// flags returns the mount's options other than "ro"; a remount without them would clear them.
func (m kernelMount) flags() (flags uintptr) {
	for name, flag := range map[string]uintptr{
		"nosuid": unix.MS_NOSUID, "nodev": unix.MS_NODEV, "noexec": unix.MS_NOEXEC,
		"noatime": unix.MS_NOATIME, "nodiratime": unix.MS_NODIRATIME, "relatime": unix.MS_RELATIME,
	} {
		if slices.Contains(m.options, name) {
			flags |= flag
		}
	}
	return flags
}
