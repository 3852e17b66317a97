// Package initsystem makes coracle a service of the machine's init system, systemd or OpenRC: it writes the service's files,
// enables, starts and stops it, and reports its state. Package install decides which service there is.
package initsystem

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
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
	Enabled bool // it is started at boot
	Running Running
}

// Manager is an init system.
type Manager interface {
	// Name is "systemd" or "openrc".
	Name() string
	// File is the path of the file that defines a service.
	File(name string) string
	// Install writes or replaces the service's file. It neither starts nor enables the service.
	Install(ctx context.Context, u Unit) error
	// Reload makes the init system read the service's file again after it was changed or removed.
	Reload(ctx context.Context, name string) error
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
		return newSystemd(root, true, Command), nil
	case has("openrc-run") && has("rc-service"):
		return newOpenRC(root, there("/run/openrc/softlevel"), Command), nil
	case has("systemctl"):
		return newSystemd(root, false, Command), nil
	}
	return nil, ErrNone
}

// base is what all init systems have in common: one file defines a service.
type base struct {
	name        string // of the init system
	dir, suffix string // of the files that define services
	root        string // put in front of paths; / except in tests
	booted      bool   // the init system runs
	run         runner
}

func (b base) Name() string { return b.name }

func (b base) File(name string) string { return filepath.Join(b.dir, name+b.suffix) }

func (b base) path(name string) string { return filepath.Join(b.root, b.File(name)) }

func (b base) installed(name string) bool { return paths.Exists(b.path(name)) }

// install writes the file of a service.
func (b base) install(name, text string, mode fs.FileMode) (changed bool, err error) {
	if err := ValidName(name); err != nil {
		return false, err
	}
	if err := os.MkdirAll(filepath.Dir(b.path(name)), 0o755); err != nil {
		return false, fmt.Errorf("making the directory of services: %w", err)
	}
	return atomicfile.WriteIfChanged(b.path(name), []byte(text), mode)
}

// ValidName reports what is wrong with a service's name, nil for nothing.
func ValidName(name string) error {
	const longest = 64
	ok := name != "" && len(name) <= longest && !strings.HasPrefix(name, "-") && !strings.HasPrefix(name, ".")
	if !ok || strings.ContainsFunc(name, func(c rune) bool { return !alphanumeric(c) && !strings.ContainsRune("-_.", c) }) {
		return fmt.Errorf("%q cannot be a service's name: use letters, digits, '-', '_' and '.'", name)
	}
	return nil
}

// StopLimit is the time limit for stopping a service. Init systems kill services after a shorter time; this is for init systems
// that hang.
const StopLimit = 3 * time.Minute

// runner runs a command of an init system and returns what it printed.
type runner func(ctx context.Context, name string, args ...string) (string, error)

// Command runs a command of an init system and returns its output. The error has what the command wrote to stderr.
func Command(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "SYSTEMD_COLORS=0", "SYSTEMD_PAGER=", "LC_ALL=C")
	// An init script's children keep its output open. They are killed with it, so that they are not waited for.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.Output()
	line := strings.Join(append([]string{name}, args...), " ")
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		err = fmt.Errorf("%s: %w", line, ctx.Err())
	case errors.As(err, &exit):
		err = &commandError{line: line, code: exit.ExitCode(), stderr: strings.TrimSpace(string(exit.Stderr))}
	case err != nil:
		err = fmt.Errorf("running %s: %w", name, err)
	}
	return string(out), err
}

// commandError is the error of a command that ran and failed.
type commandError struct {
	line   string
	code   int
	stderr string
}

func (e *commandError) Error() string {
	if e.stderr == "" {
		return fmt.Sprintf("%s: exit code %d", e.line, e.code)
	}
	return fmt.Sprintf("%s: %s", e.line, e.stderr)
}
