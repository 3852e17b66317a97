package initsystem

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
)

// systemd is that of this machine.
type systemd struct {
	root   string // in front of paths; / but in tests
	booted bool   // it runs: there is somebody to talk to
	run    runner
}

// unitDir is where an administrator's units are.
const unitDir = "/etc/systemd/system"

func (s *systemd) Name() string { return "systemd" }

func (s *systemd) Log(name string) string { return "journalctl -u " + name }

func (s *systemd) path(name string) string { return filepath.Join(s.root, unitDir, name+".service") }

// wants is the link that has a service started at boot.
func (s *systemd) wants(name string) string {
	return filepath.Join(s.root, unitDir, "multi-user.target.wants", name+".service")
}

func (s *systemd) Files(name string) []string { return []string{s.path(name)} }

func (s *systemd) Install(ctx context.Context, u Unit) ([]string, error) {
	if err := ValidName(u.Name); err != nil {
		return nil, err
	}
	path := s.path(u.Name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("making the directory of units: %w", err)
	}
	changed, err := atomicfile.WriteIfChanged(path, []byte(systemdUnit(u)), 0o644)
	if err != nil {
		return nil, err
	}
	files := []string{path}
	if !changed {
		return files, nil
	}
	return files, s.Reload(ctx, u.Name)
}

func (s *systemd) Reload(ctx context.Context, name string) error {
	if !s.booted {
		return nil
	}
	if _, err := s.run(ctx, "systemctl", "daemon-reload"); err != nil {
		return err
	}
	if _, err := os.Lstat(s.path(name)); errors.Is(err, os.ErrNotExist) {
		_, _ = s.run(ctx, "systemctl", "reset-failed", name) // else it remembers one that failed; it may know none
	}
	return nil
}

func (s *systemd) Remove(ctx context.Context, name string) error {
	path := s.path(name)
	if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err := s.Disable(ctx, name); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing the unit: %w", err)
	}
	return s.Reload(ctx, name)
}

func (s *systemd) Enable(ctx context.Context, name string) error {
	_, err := s.run(ctx, "systemctl", "--quiet", "enable", name)
	return err
}

func (s *systemd) Disable(ctx context.Context, name string) error {
	if _, err := os.Lstat(s.path(name)); errors.Is(err, os.ErrNotExist) { // systemctl disables nothing that has no unit
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

// start waits for systemctl, which waits for the service's own word.
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
	// ctx may have ended, and this is quick.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return failure(name, over, s.exitCode(ctx, name), s.said(ctx, name, began), s.Log(name))
}

// exitCode is that of the main process that ended last, 0 for none.
func (s *systemd) exitCode(ctx context.Context, name string) int {
	out, err := s.run(ctx, "systemctl", "show", "--property=ExecMainStatus", "--value", name)
	if err != nil {
		return 0
	}
	code, _ := strconv.Atoi(strings.TrimSpace(out))
	return code
}

// said is the end of what a service has written since it was started.
func (s *systemd) said(ctx context.Context, name string, since time.Time) string {
	out, err := s.run(ctx, "journalctl", "--unit="+name, "--output=cat", "--no-pager", "--quiet",
		"--lines="+strconv.Itoa(10*saidLines), "--since=@"+strconv.FormatInt(since.Unix(), 10))
	if err != nil {
		return ""
	}
	return complaint(out, saidLines)
}

func (s *systemd) Stop(ctx context.Context, name string) error {
	if !s.booted {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, stopLimit)
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
	_, err := os.Stat(s.path(name))
	state := State{Installed: err == nil, Running: Stopped}
	if !s.booted {
		_, err := os.Lstat(s.wants(name))
		state.Enabled = err == nil
		return state, nil
	}
	out, err := s.run(ctx, "systemctl", "show", "--property=LoadState,UnitFileState,ActiveState,SubState,MainPID", name)
	if err != nil {
		return state, err
	}
	p := map[string]string{}
	for line := range strings.Lines(out) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		p[key] = value
	}
	state.Installed = p["LoadState"] != "not-found"
	state.Enabled = strings.HasPrefix(p["UnitFileState"], "enabled")
	state.PID, _ = strconv.Atoi(p["MainPID"])
	state.Detail = fmt.Sprintf("%s (%s)", p["ActiveState"], p["SubState"])
	state.Running = active[p["ActiveState"]]
	if state.Running == "" {
		state.Running = Stopped
	}
	return state, nil
}

// active are systemd's words for what a unit does.
var active = map[string]Running{
	"active": Ready, "reloading": Ready, "activating": Starting, "deactivating": Stopping, "failed": Failed,
}
