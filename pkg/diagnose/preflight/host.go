package preflight

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/config"
)

// Root finds out whether root runs this.
func Root(cfg config.Config) error {
	if uid := os.Geteuid(); uid != 0 {
		return trouble("put sudo before the command", "coracle %s has to run as root and was started by user %d", cfg.Role, uid)
	}
	return nil
}

// needed are the capabilities without which nothing works, by bit.
var needed = []struct {
	bit  int
	name string
}{
	{unix.CAP_SYS_ADMIN, "SYS_ADMIN"},
	{unix.CAP_NET_ADMIN, "NET_ADMIN"},
	{unix.CAP_NET_RAW, "NET_RAW"},
	{unix.CAP_SYS_PTRACE, "SYS_PTRACE"},
	{unix.CAP_MKNOD, "MKNOD"},
	{unix.CAP_DAC_OVERRIDE, "DAC_OVERRIDE"},
	{unix.CAP_SYS_CHROOT, "SYS_CHROOT"},
}

// Capabilities finds out whether root has what root usually has.
func Capabilities(config.Config) error {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return trouble("mount /proc", "reading this process' capabilities: %v", err)
	}
	return missingCapabilities(string(status))
}

func missingCapabilities(status string) error {
	var have uint64
	for line := range strings.Lines(status) {
		if hex, ok := strings.CutPrefix(line, "CapEff:"); ok {
			have, _ = strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
		}
	}
	var missing []string
	for _, c := range needed {
		if have&(1<<c.bit) == 0 {
			missing = append(missing, "CAP_"+c.name)
		}
	}
	if missing == nil {
		return nil
	}
	add := strings.ReplaceAll(" "+strings.Join(missing, " "), " CAP_", " --cap-add ")
	return trouble("in a container, start it with --privileged, or with"+add, "this root lacks the capabilities %s", strings.Join(missing, ", "))
}

// written is before any release of coracle. A clock that says less makes certificates that nobody believes in.
var written = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// Clock finds out whether the time can be right.
func Clock(config.Config) error { return clockAt(time.Now()) }

func clockAt(now time.Time) error {
	if now.Before(written) {
		return Warning{trouble("set it, or certificates will not be valid",
			"the clock says %s, which is before coracle was written", now.Format(time.DateOnly))}
	}
	return nil
}

// controllers are what the kubelet cannot do without.
var controllers = []string{"cpu", "cpuset", "memory", "pids"}

// Cgroups looks for the controllers that the kubelet needs.
func Cgroups(config.Config) error {
	var fs unix.Statfs_t
	if err := unix.Statfs("/sys/fs/cgroup", &fs); err != nil {
		return trouble("the kernel has to have cgroups, and they have to be mounted there", "looking at /sys/fs/cgroup: %v", err)
	}
	if fs.Type == unix.CGROUP2_SUPER_MAGIC {
		have, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers")
		if err != nil {
			return fmt.Errorf("looking for cgroup controllers: %w", err)
		}
		return missingControllers(strings.Fields(string(have)))
	}
	table, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return fmt.Errorf("looking for mounted cgroups: %w", err)
	}
	if err := missingControllers(v1Controllers(string(table))); err != nil {
		return err
	}
	return Warning{trouble("boot the kernel with systemd.unified_cgroup_hierarchy=1 to change to v2",
		"this machine uses cgroup v1, which Kubernetes is about to give up")}
}

// v1Controllers lists the controllers that are mounted, by the text of /proc/self/mounts.
func v1Controllers(mounts string) (have []string) {
	for line := range strings.Lines(mounts) {
		if f := strings.Fields(line); len(f) > 3 && f[2] == "cgroup" {
			have = append(have, strings.Split(f[3], ",")...)
		}
	}
	return have
}

func missingControllers(have []string) error {
	set := map[string]bool{}
	for _, c := range have {
		set[c] = true
	}
	var missing []string
	for _, c := range controllers {
		if !set[c] {
			missing = append(missing, c)
		}
	}
	if missing == nil {
		return nil
	}
	return trouble("add them to the kernel's command line (as in cgroup_enable=memory), "+
		"or give the container its own cgroup namespace (--cgroupns=private)", "cgroup controllers are missing: %s", strings.Join(missing, ", "))
}
