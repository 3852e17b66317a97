package initsystem

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// openRC is the init system OpenRC.
type openRC struct{ base }

func newOpenRC(root string, booted bool, run runner) *openRC {
	return &openRC{base{"openrc", "/etc/init.d", "", root, booted, run}}
}

// runlevel is the runlevel of a machine after its boot.
const runlevel = "default"

func (o *openRC) Log(name string) string { return "tail -f " + openRCLog(name) }

func (o *openRC) Install(_ context.Context, u Unit) error {
	_, err := o.install(u.Name, openRCScript(u), 0o700)
	return err
}

// Reload has nothing to reload. It removes the log of a service that was removed.
func (o *openRC) Reload(_ context.Context, name string) error {
	if o.installed(name) {
		return nil
	}
	for _, log := range []string{openRCLog(name), openRCLog(name) + ".1"} {
		_ = os.Remove(filepath.Join(o.root, log))
	}
	return nil
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
	return failure(name, context.Cause(ctx), 0, reason(string(log), shownLines), o.Log(name))
}

func (o *openRC) Stop(ctx context.Context, name string) error {
	if !o.installed(name) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, StopLimit)
	defer cancel()
	_, err := o.run(ctx, "rc-service", "--quiet", "--ifstarted", name, "stop")
	return err
}

func (o *openRC) State(ctx context.Context, name string) (State, error) {
	state := State{Enabled: o.enabled(name), Running: Stopped}
	if !o.installed(name) || !o.booted {
		return state, nil
	}
	_, err := o.run(ctx, "rc-service", name, "status")
	var failed *commandError
	switch {
	case err == nil:
		state.Running = Starting
		if _, err := o.run(ctx, "rc-service", "--quiet", name, "usable"); err == nil {
			state.Running = Ready
		}
	case errors.As(err, &failed):
		state.Running = cmp.Or(statuses[failed.code], Stopped)
	default:
		return state, err
	}
	return state, nil
}

// statuses are the exit codes of `rc-service NAME status`.
var statuses = map[int]Running{1: Failed, 3: Stopped, 4: Stopping, 8: Starting, 16: Stopped, 32: Failed}
