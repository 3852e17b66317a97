package initsystem

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// openRC is that of this machine.
type openRC struct {
	root   string // in front of paths; / but in tests
	booted bool
	run    runner
}

// scriptDir is where init scripts are.
const scriptDir = "/etc/init.d"

// runlevel is the one that a machine comes up with.
const runlevel = "default"

func (o *openRC) Name() string { return "openrc" }

func (o *openRC) Log(name string) string { return "tail -f " + openRCLog(name) }

func (o *openRC) path(name string) string { return filepath.Join(o.root, scriptDir, name) }

func (o *openRC) Files(name string) []string { return []string{o.path(name)} }

func (o *openRC) Install(_ context.Context, u Unit) ([]string, error) {
	if err := ValidName(u.Name); err != nil {
		return nil, err
	}
	path := o.path(u.Name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("making the directory of init scripts: %w", err)
	}
	if _, err := atomicfile.WriteIfChanged(path, []byte(openRCScript(u)), 0o755); err != nil {
		return nil, err
	}
	return []string{path}, nil
}

// Reload has nothing to reload. The log of a service that is gone goes too.
func (o *openRC) Reload(_ context.Context, name string) error {
	if _, err := os.Lstat(o.path(name)); !errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, log := range []string{openRCLog(name), openRCLog(name) + ".1"} {
		_ = os.Remove(filepath.Join(o.root, log))
	}
	return nil
}

func (o *openRC) Remove(ctx context.Context, name string) error {
	path := o.path(name)
	if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err := o.Disable(ctx, name); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing the init script: %w", err)
	}
	return o.Reload(ctx, name)
}

// enabled reports whether the service is in the runlevel.
func (o *openRC) enabled(name string) bool {
	return paths.Exists(filepath.Join(o.root, "/etc/runlevels", runlevel, name))
}

func (o *openRC) Enable(ctx context.Context, name string) error {
	if o.enabled(name) {
		return nil
	}
	_, err := o.run(ctx, "rc-update", "--quiet", "add", name, runlevel)
	return err
}

func (o *openRC) Disable(ctx context.Context, name string) error {
	if !o.enabled(name) {
		return nil
	}
	_, err := o.run(ctx, "rc-update", "--quiet", "del", name, runlevel)
	return err
}

func (o *openRC) Start(ctx context.Context, name string) error { return o.start(ctx, "start", name) }

func (o *openRC) Restart(ctx context.Context, name string) error {
	return o.start(ctx, "restart", name)
}

// start starts the service and waits through the script's own command, because OpenRC does not know of readiness.
func (o *openRC) start(ctx context.Context, verb, name string) error {
	_, err := o.run(ctx, "rc-service", "--quiet", name, verb)
	if err == nil {
		_, err = o.run(ctx, "rc-service", "--quiet", name, "ready")
	}
	if err == nil {
		return nil
	}
	log, _ := os.ReadFile(filepath.Join(o.root, openRCLog(name)))
	return failure(name, context.Cause(ctx), 0, complaint(string(log), saidLines), o.Log(name))
}

func (o *openRC) Stop(ctx context.Context, name string) error {
	if _, err := os.Stat(o.path(name)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, stopLimit)
	defer cancel()
	_, err := o.run(ctx, "rc-service", "--quiet", "--ifstarted", name, "stop")
	return err
}

func (o *openRC) State(ctx context.Context, name string) (State, error) {
	_, err := os.Stat(o.path(name))
	state := State{Installed: err == nil, Enabled: o.enabled(name), Running: Stopped}
	if !state.Installed || !o.booted {
		return state, nil
	}
	out, err := o.run(ctx, "rc-service", name, "status")
	state.Detail = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(out), "* status:"))
	var status *commandError
	switch {
	case err == nil:
		state.Running = Starting
		if _, err := o.run(ctx, "rc-service", "--quiet", name, "usable"); err == nil {
			state.Running = Ready
		}
		return state, nil
	case errors.As(err, &status):
		state.Running = statuses[status.code]
		if state.Running == "" {
			state.Running = Stopped
		}
		return state, nil
	}
	return state, err
}

// statuses are the exit codes of `rc-service NAME status`.
var statuses = map[int]Running{1: Failed, 3: Stopped, 4: Stopping, 8: Starting, 16: Stopped, 32: Failed}
