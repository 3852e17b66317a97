package reset

import (
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/coracle-dev/coracle/pkg/core/footprint"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/machine/initsystem"
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
		out, err := initsystem.Command(ctx, "systemctl", "show", "--property=MainPID", "--value", unit)
		if err == nil && strings.TrimSpace(out) == strconv.Itoa(pid) {
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

// removeLogindConfig removes what the kubelet has told logind, and makes logind read its configuration again.
func (m *machine) removeLogindConfig(ctx context.Context) error {
	if err := m.removeTree(m.host(footprint.LogindConfig)); err != nil {
		return err
	}
	if m.root == "" && underSystemd() {
		// systemd before version 256 has no "reload" for it. Without a logind, nothing has to be told.
		_ = systemctl(ctx, "kill", "--signal=HUP", "systemd-logind.service")
	}
	return nil
}

// systemctl runs systemctl and waits for its end.
func systemctl(ctx context.Context, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, initsystem.StopLimit)
	defer cancel()
	_, err := initsystem.Command(ctx, "systemctl", args...)
	return err
}

// underSystemd reports whether systemd runs this machine.
func underSystemd() bool {
	return paths.Exists("/run/systemd/system")
}
