package reset

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// systemdUnit returns the service whose main process pid is, "" for none. systemd would start such a process again if it were
// killed.
func systemdUnit(ctx context.Context, pid int) string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return ""
	}
	for _, unit := range services(string(data)) {
		// A process that was started from a shell is in the shell's service, but not its main process.
		out, err := exec.CommandContext(ctx, "systemctl", "show", "--property=MainPID", "--value", unit).Output()
		if err == nil && strings.TrimSpace(string(out)) == strconv.Itoa(pid) {
			return unit
		}
	}
	return ""
}

// services returns the services in the text of a process' cgroup file.
func services(cgroups string) (units []string) {
	for line := range strings.Lines(cgroups) {
		unit := path.Base(strings.TrimSpace(line))
		if strings.HasSuffix(unit, ".service") && !slices.Contains(units, unit) {
			units = append(units, unit)
		}
	}
	return units
}

// systemctl runs systemctl and waits for its end.
func systemctl(ctx context.Context, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "systemctl", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("systemctl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// underSystemd reports whether systemd runs this machine.
func underSystemd() bool {
	return paths.Exists("/run/systemd/system")
}
