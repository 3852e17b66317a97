// Package initsystem makes coracle a service of the machine's init system, systemd or OpenRC: it writes the service's files,
// enables, starts and stops it, and reports its state. Package install decides which service there is.
package initsystem

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// Unit describes a service independently of the init system.
type Unit struct {
	Name        string // coracle, coracle-agent; letters, digits, '-', '_' and '.'
	Description string
	// Exec is the absolute path of the program and its arguments, unquoted.
	Exec []string
	// Before is a command with an absolute path that runs before each start; if it fails the service does not start. It may
	// be nil.
	Before []string
	// Ready is a command that returns when the service is ready, for init systems without a notification protocol.
	Ready []string
	// Environment is the path of a file as Environment writes it. It may be missing.
	Environment string
	// Mounts are directories whose file systems must be mounted first.
	Mounts []string
}

// Running is the present state of a service.
type Running string

// The states of a service.
const (
	Stopped  Running = "stopped"
	Starting Running = "starting" // or waiting for a restart
	Ready    Running = "ready"
	Stopping Running = "stopping"
	Failed   Running = "failed" // and not restarted
)

// State is what the init system reports about a service.
type State struct {
	Installed bool // the init system knows it
	Enabled   bool // it is started at boot
	Running   Running
	PID       int // of the main process; 0 for none or if it is unknown
	// Detail is the state in the init system's own words, for people: "activating (auto-restart)".
	Detail string
}

// Manager is an init system.
type Manager interface {
	// Name is "systemd" or "openrc".
	Name() string
	// Files are the paths that Install writes for a service.
	Files(name string) []string
	// Install writes or replaces the service's files and returns their paths. It neither starts nor enables the service.
	Install(ctx context.Context, u Unit) ([]string, error)
	// Reload makes the init system read the service's files again after they were changed or removed.
	Reload(ctx context.Context, name string) error
	// Remove disables the service and removes its files. The service must be stopped. It is no error if it does not exist.
	Remove(ctx context.Context, name string) error
	// Enable makes the service start at boot, and Disable not.
	Enable(ctx context.Context, name string) error
	Disable(ctx context.Context, name string) error
	// Start returns when the service is ready. The error has the reason from the service's log. If ctx ends first, the service
	// continues to start.
	Start(ctx context.Context, name string) error
	// Stop terminates the service's main process and returns when it has ended. Pods run on.
	Stop(ctx context.Context, name string) error
	// Restart is Stop and Start; a service that does not run is only started.
	Restart(ctx context.Context, name string) error
	State(ctx context.Context, name string) (State, error)
	// Log returns the command that shows the service's log.
	Log(name string) string
}

// ErrNone is the error of Detect on a machine whose init system is neither systemd nor OpenRC.
var ErrNone = errors.New("this machine's init system is neither systemd nor OpenRC")

// Detect returns the running init system, or if there is none, as in an image that is being built, the installed one. That
// can install and enable services, but not start them.
func Detect() (Manager, error) { return detect("/", exec.LookPath) }

func detect(root string, look func(string) (string, error)) (Manager, error) {
	there := func(path string) bool {
		return paths.Exists(filepath.Join(root, path))
	}
	has := func(name string) bool {
		_, err := look(name)
		return err == nil
	}
	switch {
	case there("/run/systemd/system") && has("systemctl"):
		return &systemd{root: root, booted: true, run: command}, nil
	case has("openrc-run") && has("rc-service"):
		return &openRC{root: root, booted: there("/run/openrc/softlevel"), run: command}, nil
	case has("systemctl"):
		return &systemd{root: root, run: command}, nil
	}
	return nil, ErrNone
}

// ValidName reports what is wrong with a service's name, nil for nothing.
func ValidName(name string) error {
	const longest = 64
	ok := name != "" && len(name) <= longest && !strings.HasPrefix(name, "-") && !strings.HasPrefix(name, ".")
	for _, c := range name {
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-_.", c))
	}
	if !ok {
		return fmt.Errorf("%q cannot be a service's name: use letters, digits, '-', '_' and '.'", name)
	}
	return nil
}

// stopLimit is for stopping a service. Init systems kill what takes longer than they were told; this is for when they hang.
const stopLimit = 3 * time.Minute

// runner runs a command of an init system and returns what it printed.
type runner func(ctx context.Context, name string, args ...string) (string, error)

// command is the runner of a real machine. Its error carries what the command had to say.
func command(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "SYSTEMD_COLORS=0", "SYSTEMD_PAGER=", "LC_ALL=C")
	// An init script's children hold its output open: without this they would be waited for, and stay.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.Output()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return string(out), fmt.Errorf("%s: %w", strings.Join(append([]string{name}, args...), " "), ctx.Err())
	case errors.As(err, &exit):
		said := strings.TrimSpace(string(exit.Stderr))
		return string(out), &commandError{line: strings.Join(append([]string{name}, args...), " "), code: exit.ExitCode(), said: said}
	case err != nil:
		return string(out), fmt.Errorf("running %s: %w", name, err)
	}
	return string(out), nil
}

// commandError is that of a command which ran and failed.
type commandError struct {
	line string
	code int
	said string // on stderr
}

func (e *commandError) Error() string {
	if e.said == "" {
		return fmt.Sprintf("%s: exit code %d", e.line, e.code)
	}
	return fmt.Sprintf("%s: %s", e.line, e.said)
}
