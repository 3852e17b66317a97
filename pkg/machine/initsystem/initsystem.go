// Package initsystem makes coracle a service of the machine's init system: what a service is for systemd and for OpenRC, how
// it is enabled, started and asked after. Who needs which service, and what else belongs to an installation, is package
// install's business.
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

// Unit is a service as coracle needs it, in no init system's words.
type Unit struct {
	Name        string // coracle, coracle-agent; letters, digits, '-', '_' and '.'
	Description string
	// Exec is the program, by its absolute path, and its arguments, each as it is: rendering quotes them.
	Exec []string
	// Before is a command that runs before each start, by its absolute path; a failure keeps the service from starting.
	// Nil for none.
	Before []string
	// Ready is a command that returns when the service can be used, for init systems that a service cannot tell itself.
	Ready []string
	// Environment is the path of a file as Environment writes it. It may be missing.
	Environment string
	// Mounts are directories whose file systems must be mounted first.
	Mounts []string
}

// Running is what a service does at the moment.
type Running string

// What a service can be doing.
const (
	Stopped  Running = "stopped"
	Starting Running = "starting" // or it waits to be started again
	Ready    Running = "ready"
	Stopping Running = "stopping"
	Failed   Running = "failed" // and it is not started again
)

// State is how a service is.
type State struct {
	Installed bool // the init system knows it
	Enabled   bool // it is started at boot
	Running   Running
	PID       int // of its main process; 0 for none, or if it cannot be told
	// Detail is what the init system says in its own words, for people: "activating (auto-restart)".
	Detail string
}

// Manager is an init system.
type Manager interface {
	// Name is "systemd" or "openrc".
	Name() string
	// Files are the paths that Install writes for a service.
	Files(name string) []string
	// Install writes the service down, or replaces it, and returns the files that it wrote. It starts and enables nothing.
	Install(ctx context.Context, u Unit) ([]string, error)
	// Reload takes note that somebody else has changed or removed the service's files.
	Reload(ctx context.Context, name string) error
	// Remove forgets the service: it is disabled and its files are removed. It must be stopped. One that is not there is
	// no error.
	Remove(ctx context.Context, name string) error
	// Enable makes the service start at boot, and Disable not.
	Enable(ctx context.Context, name string) error
	Disable(ctx context.Context, name string) error
	// Start returns when the service has said that it is ready; the error says why it is not, as far as its log does. When
	// ctx ends first the service is left starting.
	Start(ctx context.Context, name string) error
	// Stop ends the service's main process in order and returns when it is gone. Pods run on.
	Stop(ctx context.Context, name string) error
	// Restart is Stop and Start; a service that does not run is only started.
	Restart(ctx context.Context, name string) error
	State(ctx context.Context, name string) (State, error)
	// Log returns the command with which people read the service's log.
	Log(name string) string
}

// ErrNone is the error of Detect on a machine whose init system is neither systemd nor OpenRC.
var ErrNone = errors.New("this machine's init system is neither systemd nor OpenRC")

// Detect finds the machine's init system: the one that runs, else, as in an image that is being built, the one that is
// installed. The latter can install and enable services and start none.
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
