// Package host prepares a machine for a node: kernel settings, mount propagation, cgroups. It also reports what the machine
// supports, for configurations that depend on it. Every change is noted in the ledger first.
package host

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// Facts is what generated configurations need to know about the machine.
type Facts struct {
	// CgroupV2 is true where the unified hierarchy is mounted at /sys/fs/cgroup.
	CgroupV2 bool
	// Systemd is true where systemd runs the machine and can be talked to.
	Systemd bool
	// SystemdCgroups is true where systemd manages the cgroups: runc and the kubelet then use the systemd cgroup driver.
	SystemdCgroups bool
	// Logind is true where the kubelet can delay a shutdown.
	Logind bool
	// Resource is CAP_SYS_RESOURCE, which lowering the oom_score_adj of a process needs.
	Resource bool
	// UnprivilegedPorts and UnprivilegedICMP are the network namespace's sysctls that let anyone bind port 80 and ping.
	UnprivilegedPorts, UnprivilegedICMP bool
	// Keyrings is true where processes may have keyrings. Container engines forbid the system calls.
	Keyrings bool
	// IPv6 is true where the kernel has it and it is not disabled.
	IPv6 bool
	// AppArmor is true where the kernel enforces profiles and the host has the parser to load them.
	AppArmor bool
}

// Probe looks at the machine.
func Probe() Facts {
	systemd := paths.Exists("/run/systemd/system")
	v2 := cgroupV2("/sys/fs/cgroup")
	capabilities, _ := Capabilities() // none if they cannot be read
	return Facts{
		CgroupV2:          v2,
		Systemd:           paths.Exists("/run/systemd/private") && read("/proc/1/comm") == "systemd",
		SystemdCgroups:    v2 && systemd && paths.Exists("/run/systemd/private"),
		Logind:            systemd && paths.Exists("/run/systemd/seats"),
		Resource:          capabilities&(1<<unix.CAP_SYS_RESOURCE) != 0,
		UnprivilegedPorts: paths.Exists("/proc/sys/net/ipv4/ip_unprivileged_port_start"),
		UnprivilegedICMP:  paths.Exists("/proc/sys/net/ipv4/ping_group_range"),
		Keyrings:          keyrings(),
		IPv6:              paths.Exists("/proc/net/if_inet6") && read("/proc/sys/net/ipv6/conf/all/disable_ipv6") != "1",
		AppArmor:          read("/sys/module/apparmor/parameters/enabled") == "Y" && paths.Exists("/sbin/apparmor_parser"),
	}
}

// cgroupV2 reports whether the unified hierarchy is mounted at root. In a hybrid layout a tmpfs is there.
func cgroupV2(root string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(root, &fs) == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC
}

// keyrings reports whether this process may ask for its session keyring. runc copes with a kernel without keyrings (ENOSYS),
// but not with a seccomp filter that refuses the call (EPERM).
func keyrings() bool {
	_, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, false)
	return !errors.Is(err, unix.EPERM)
}

// Capabilities returns the effective capabilities of this process, a bit for each.
func Capabilities() (set uint64, err error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return 0, fmt.Errorf("reading this process' capabilities: %w", err)
	}
	return uint64(data[1].Effective)<<32 | uint64(data[0].Effective), nil
}

// read returns a small file's text without surrounding space, "" if it cannot be read.
func read(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}
