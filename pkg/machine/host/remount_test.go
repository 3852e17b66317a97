package host

import (
	"reflect"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// TestReadOnlyMounts finds what is read-only in the mount tables of containers.
func TestReadOnlyMounts(t *testing.T) {
	const root = "600 500 0:50 / / rw,relatime - overlay overlay rw,lowerdir=x\n"
	tests := []struct {
		name, mounts string
		want         []string
	}{
		{"cgroup v1", root +
			"601 600 0:51 / /proc rw,nosuid,nodev,noexec,relatime - proc proc rw\n" +
			"602 600 0:52 / /sys ro,nosuid,nodev,noexec,relatime - sysfs sysfs ro\n" +
			"603 602 0:53 / /sys/fs/cgroup ro,nosuid,nodev,noexec,relatime - tmpfs tmpfs rw,mode=755\n" +
			"604 603 0:31 /docker/0a1b /sys/fs/cgroup/memory ro,nosuid,nodev,noexec,relatime master:16 - cgroup cgroup rw,memory\n" +
			"605 603 0:32 /docker/0a1b /sys/fs/cgroup/pids rw,nosuid,nodev,noexec,relatime master:17 - cgroup cgroup rw,pids\n" +
			"606 601 0:51 /sys /proc/sys ro,relatime - proc proc rw\n" +
			"607 601 0:51 /bus /proc/bus ro,relatime - proc proc rw\n",
			[]string{"/sys", "/sys/fs/cgroup/memory", "/proc/sys"}},
		{"cgroup v2", root +
			"602 600 0:52 / /sys ro,nosuid,nodev,noexec,relatime - sysfs sysfs ro\n" +
			"603 602 0:28 / /sys/fs/cgroup ro,nosuid,nodev,noexec,relatime - cgroup2 cgroup rw,nsdelegate\n",
			[]string{"/sys", "/sys/fs/cgroup"}},
		{"privileged", root +
			"602 600 0:52 / /sys rw,nosuid,nodev,noexec,relatime - sysfs sysfs rw\n" +
			"603 602 0:28 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime - cgroup2 cgroup rw,nsdelegate\n", nil},
		{"covered by a writable one", root +
			"603 602 0:28 / /sys/fs/cgroup ro,relatime - cgroup2 cgroup rw\n" +
			"604 603 0:28 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup rw\n", nil},
		{"unlocked, but for the file system itself", root +
			"602 600 0:52 / /sys rw,nosuid,nodev,noexec,relatime - sysfs sysfs ro\n", []string{"/sys"}},
		{"nothing", "", nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, m := range readOnlyMounts(mounts(t, test.mounts)) {
				got = append(got, m.Mountpoint)
			}
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestFlags: making a mount writable changes nothing else about it.
func TestFlags(t *testing.T) {
	m := &mountinfo.Info{Options: "ro,nosuid,nodev,noexec,relatime"}
	if got, want := flags(m), uintptr(unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_RELATIME); got != want {
		t.Errorf("got %#x, want %#x", got, want)
	}
}
