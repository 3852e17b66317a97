package initsystem

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// systemd is the init system of the same name.
type systemd struct{ base }

// unitDir is the directory of an administrator's units.
const unitDir = "/etc/systemd/system"

func newSystemd(root string, booted bool, run runner) *systemd {
	return &systemd{base{"systemd", unitDir, ".service", root, booted, run}}
}

func (s *systemd) Log(name string) string { return "journalctl -u " + name }

// wants is the link that makes systemd start a service at boot.
func (s *systemd) wants(name string) string {
	return filepath.Join(s.root, unitDir, "multi-user.target.wants", name+".service")
}

func (s *systemd) Install(ctx context.Context, u Unit) error {
	changed, err := s.install(u.Name, systemdUnit(u), 0o600)
	if err != nil || !changed {
		return err
	}
	return s.Reload(ctx, u.Name)
}

func (s *systemd) Reload(ctx context.Context, name string) error {
	if !s.booted {
		return nil
	}
	if _, err := s.run(ctx, "systemctl", "daemon-reload"); err != nil {
		return err
	}
	if !s.installed(name) {
		_, _ = s.run(ctx, "systemctl", "reset-failed", name) // otherwise systemd remembers a failed service; it may know none
	}
	return nil
}

func (s *systemd) Enable(ctx context.Context, name string) error {
	_, err := s.run(ctx, "systemctl", "--quiet", "enable", name)
	return err
}

func (s *systemd) Disable(ctx context.Context, name string) error {
	if !s.installed(name) { // systemctl disables nothing that has no unit
		if err := os.Remove(s.wants(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("disabling service %s: %w", name, err)
		}
		return nil
	}
	_, err := s.run(ctx, "systemctl", "--quiet", "disable", name)
	return err
}

// errNotBooted is the error of starting a service where no systemd runs.
var errNotBooted = errors.New("systemd does not run here, so that no service can be started: leave that to the next boot, with --skip-start")

func (s *systemd) Start(ctx context.Context, name string) error { return s.start(ctx, "start", name) }

func (s *systemd) Restart(ctx context.Context, name string) error {
	return s.start(ctx, "restart", name)
}

// start waits for systemctl, which waits for the service's notification.
func (s *systemd) start(ctx context.Context, verb, name string) error {
	if !s.booted {
		return errNotBooted
	}
	began := time.Now()
	_, err := s.run(ctx, "systemctl", verb, name)
	if err == nil {
		return nil
	}
	over := context.Cause(ctx)
	// ctx may have ended, and these commands are quick.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return failure(name, over, s.exitCode(ctx, name), s.logged(ctx, name, began), s.Log(name))
}

// exitCode returns the exit code of the main process that ended last, 0 for none.
func (s *systemd) exitCode(ctx context.Context, name string) int {
	out, err := s.run(ctx, "systemctl", "show", "--property=ExecMainStatus", "--value", name)
	if err != nil {
		return 0
	}
	code, _ := strconv.Atoi(strings.TrimSpace(out))
	return code
}

// logged returns the reason for a failure from what a service has logged since it was started.
func (s *systemd) logged(ctx context.Context, name string, since time.Time) string {
	out, err := s.run(ctx, "journalctl", "--unit="+name, "--output=cat", "--no-pager", "--quiet",
		"--lines="+strconv.Itoa(10*shownLines), "--since=@"+strconv.FormatInt(since.Unix(), 10))
	if err != nil {
		return ""
	}
	return reason(out, shownLines)
}

func (s *systemd) Stop(ctx context.Context, name string) error {
	if !s.booted {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, StopLimit)
	defer cancel()
	_, err := s.run(ctx, "systemctl", "stop", name)
	var failed *commandError
	if errors.As(err, &failed) && failed.code == unitNotThere {
		return nil
	}
	return err
}

// unitNotThere is systemctl's exit code for a unit that it does not know.
const unitNotThere = 5

func (s *systemd) State(ctx context.Context, name string) (State, error) {
	if !s.booted {
		_, err := os.Lstat(s.wants(name))
		return State{Enabled: err == nil, Running: Stopped}, nil
	}
	out, err := s.run(ctx, "systemctl", "show", "--property=UnitFileState,ActiveState", name)
	state := State{Running: Stopped}
	for line := range strings.Lines(out) {
		switch key, value, _ := strings.Cut(strings.TrimSpace(line), "="); key {
		case "UnitFileState":
			state.Enabled = strings.HasPrefix(value, "enabled")
		case "ActiveState":
			state.Running = cmp.Or(active[value], Stopped)
		}
	}
	return state, err
}

// active has the states of services by systemd's ActiveState.
var active = map[string]Running{
	"active": Ready, "reloading": Ready, "activating": Starting, "deactivating": Stopping, "failed": Failed,
}
