package preflight

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/config"
)

func root(cfg config.Config) error {
	if uid := os.Geteuid(); uid != 0 {
		return fmt.Errorf("coracle %s has to run as root and was started by user %d: put sudo before the command", cfg.Role, uid)
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

func capabilities(config.Config) error {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return fmt.Errorf("reading this process' capabilities: %w; /proc has to be mounted", err)
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
	return fmt.Errorf("this root lacks the capabilities %s: in a container, start it with --privileged", strings.Join(missing, ", "))
}

// written is before any release of coracle. A clock that says less makes certificates that nobody believes in.
var written = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

func clock(config.Config) error { return clockAt(time.Now()) }

func clockAt(now time.Time) error {
	if now.Before(written) {
		return Warning{fmt.Errorf("the clock says %s, which is before coracle was written: set it, or certificates will not be valid",
			now.Format(time.DateOnly))}
	}
	return nil
}

// controllers are what the kubelet cannot do without.
var controllers = []string{"cpu", "cpuset", "memory", "pids"}

func cgroups(config.Config) error {
	var fs unix.Statfs_t
	if err := unix.Statfs("/sys/fs/cgroup", &fs); err != nil {
		return fmt.Errorf("looking at /sys/fs/cgroup: %w; the kernel has to have cgroups, and they have to be mounted there", err)
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
	return Warning{errors.New("this machine uses cgroup v1, which Kubernetes is about to give up: " +
		"boot the kernel with systemd.unified_cgroup_hierarchy=1 to change to v2")}
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
	return fmt.Errorf("cgroup controllers are missing: %s; add them to the kernel's command line (as in cgroup_enable=memory), "+
		"or give the container its own cgroup namespace (--cgroupns=private)", strings.Join(missing, ", "))
}
