package front

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/core/supervise"
	"github.com/coracle-dev/coracle/pkg/core/version"
	"github.com/coracle-dev/coracle/pkg/diagnose/check"
	"github.com/coracle-dev/coracle/pkg/machine/host"
)

// Run runs a server or an agent, with the arguments of that command, until a signal asks it to stop. The error is
// pflag.ErrHelp if the arguments ask for help.
func Run(role config.Role, args []string) error {
	cfg, err := resolve(role, args)
	if err != nil {
		return err
	}
	if os.Geteuid() == 0 { // otherwise check.Start returns the reason
		if err := host.RemountWritable(); err != nil {
			return err
		}
	}
	children := []string{state.Node}
	if role == config.Server {
		children = []string{state.ControlPlane, state.Node}
	}
	settle := func(known config.Known) (config.Config, error) {
		return config.ResolveIn(role, args, os.Environ(), known)
	}
	return runFront(cfg, settle, children...)
}

// resolve reads the configuration. As PID 1 it first mounts the file systems that are read for it.
func resolve(role config.Role, args []string) (config.Config, error) {
	if os.Getpid() == 1 {
		if err := supervise.Mount(); err != nil {
			if lacking := check.MissingCapabilities(); lacking != nil {
				return config.Config{}, lacking
			}
			return config.Config{}, fmt.Errorf("setting up the machine as its init: %w", err)
		}
		host.MountHierarchies()
	}
	cfg, err := config.Resolve(role, args, os.Environ())
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return cfg, err
	case config.OnlyNotYet(err):
		return cfg, exitcode.With(exitcode.Unfit, err) // a service manager starts it again, as it does not after a mistake
	case err != nil:
		return cfg, exitcode.With(exitcode.Misuse, err)
	}
	return cfg, nil
}

// serverData calls do for the data of a server, and this version.
func (f *front) serverData(do func(paths.Dirs, string) error) error {
	if f.cfg.Role == config.Agent {
		return nil
	}
	return do(f.cfg.Dirs, version.Version)
}
