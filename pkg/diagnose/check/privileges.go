package check

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/machine/host"
)

// privileges looks for root with the capabilities that root usually has.
func privileges(_ context.Context, m *Machine) []Verdict {
	if uid := os.Geteuid(); uid != 0 {
		return Failf("put sudo before the command", "coracle %s has to run as root and was started by user %d", m.Config.Role, uid)
	}
	return Else(capabilities(), Okf("root, with the capabilities that are needed"))
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

// MissingCapabilities reports capabilities that coracle needs and this process lacks.
func MissingCapabilities() error { return failures(capabilities()) }

func capabilities() []Verdict {
	have, err := host.Capabilities()
	if err != nil {
		return Failf("", "%v", err)
	}
	return judgeCapabilities(have)
}

// judgeCapabilities returns nil if no capability is missing.
func judgeCapabilities(have uint64) []Verdict {
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
	return Failf("in a container, start it with --privileged, or with"+add, "this root lacks the capabilities %s", strings.Join(missing, ", "))
}

// seccomp looks for filters of system calls: those that pods may have, and one that this process is under, as container
// engines make them.
func seccomp(_ context.Context, m *Machine) []Verdict {
	actions := strings.Fields(m.read("/proc/sys/kernel/seccomp/actions_avail"))
	// Without the hardened defaults, only pods that ask for a profile need them.
	if (!m.starting || m.Config.Security.Strict()) && !slices.Contains(actions, "errno") {
		return Failf("use a kernel with CONFIG_SECCOMP_FILTER, or --hardened=false if no pod needs a profile", "the kernel has no seccomp filters, and pods with a profile do not start")
	}
	if capabilities() == nil { // without them pivot_root is refused anyway
		if wrong := judgePivot(unix.PivotRoot("", "")); wrong != nil {
			return wrong
		}
	}
	return Okf("pods may have them, and none is in the way here")
}

// judgePivot judges the error of pivot_root with directories that cannot exist. It returns nil if the call is allowed.
func judgePivot(err error) []Verdict {
	if errors.Is(err, unix.EPERM) {
		return Failf("start the container with --security-opt seccomp=unconfined, or --privileged",
			"a filter of system calls forbids pivot_root, which every container of a pod needs")
	}
	return nil
}
