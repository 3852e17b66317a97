package command

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/version"
	"github.com/coracle-dev/coracle/pkg/machine/initsystem"
	"github.com/coracle-dev/coracle/pkg/machine/install"
)

// spec returns the installation that the flags, the command after them and the environment ask for.
func (f installFlags) spec(in *install.Installer, command, environ []string) (w install.Spec, err error) {
	environment := install.Environment(environ)
	role, args, name, err := f.service(in, command, &environment)
	if err != nil {
		return w, err
	}
	args, tokens := install.HideTokens(args)
	environment = append(environment, tokens...)
	for _, pair := range environment {
		if name, value, _ := strings.Cut(pair, "="); strings.ContainsAny(value, "\n\x00") {
			return w, exitcode.Usagef("%s has more than one line, and a service's variables cannot", name)
		}
	}
	dir, err := filepath.Abs(f.binDir)
	if err != nil {
		return w, err
	}
	if err := os.Chdir("/"); err != nil { // where the service will be: a file named from here must be found from there too
		return w, err
	}
	cfg, err := config.Resolve(role, args, environment)
	if errors.Is(err, pflag.ErrHelp) {
		return w, roleHelp(role)
	}
	if err != nil {
		return w, exitcode.With(exitcode.Misuse, err)
	}
	if cfg.Ephemeral.On {
		return w, exitcode.Usagef("an ephemeral cluster cannot be installed: nothing of it would be left after the first stop")
	}
	self, err := os.Executable()
	if err != nil {
		return w, fmt.Errorf("finding this executable: %w", err)
	}
	return install.Spec{
		Service: name, Role: role, Args: args, Environment: environment, Config: cfg, BinDir: dir, Self: self, Version: version.Version,
		Enable: !f.skipEnable, Start: !f.skipStart, Wait: f.wait,
	}, nil
}

// service returns role, arguments and name of the service from the command line and the environment, or else from what is
// installed.
func (f installFlags) service(in *install.Installer, command []string, environment *[]string) (config.Role, []string, string, error) {
	named := ""
	if f.name != "" {
		named = "coracle-" + strings.TrimPrefix(f.name, "coracle-")
		if err := initsystem.ValidName(named); err != nil {
			return "", nil, "", exitcode.Usagef("--name: %w", err)
		}
	}
	if len(command) > 0 && !strings.HasPrefix(command[0], "-") {
		role := config.Role(command[0])
		if role != config.Server && role != config.Agent {
			return "", nil, "", exitcode.Usagef("%q cannot be installed: after the flags comes server or agent, with its arguments", command[0])
		}
		return role, command[1:], cmp.Or(named, serviceName(role)), nil
	}
	if joins(*environment) {
		return config.Agent, command, cmp.Or(named, serviceName(config.Agent)), nil
	}
	if len(command) == 0 {
		r, ok, err := installed(in.Store, named)
		if err != nil || ok {
			if err == nil {
				var stored []string
				stored, err = in.Variables(r)
				*environment = merged(stored, *environment)
			}
			return r.Role, r.Args, r.Service, err
		}
	}
	return config.Server, command, cmp.Or(named, serviceName(config.Server)), nil
}

// merged returns the variables of an installed service with those that are set now, so that a shell with fewer variables
// does not remove any.
func merged(stored, now []string) []string {
	name := func(pair string) string { name, _, _ := strings.Cut(pair, "="); return name }
	kept := slices.DeleteFunc(stored, func(s string) bool {
		return slices.ContainsFunc(now, func(n string) bool { return name(n) == name(s) })
	})
	return append(kept, now...)
}

// serviceName is the name of the first service of a role.
func serviceName(role config.Role) string {
	if role == config.Agent {
		return "coracle-agent"
	}
	return "coracle"
}

// joins reports whether the variables name a server to join.
func joins(environment []string) bool {
	return slices.ContainsFunc(environment, func(pair string) bool {
		return strings.HasPrefix(pair, "CORACLE_URL=") || strings.HasPrefix(pair, "CORACLE_SERVER=")
	})
}

// installed finds the installation of a name, or without a name the only one. ok is false if there is none.
func installed(store install.Store, name string) (r install.Record, ok bool, err error) {
	all, err := store.All()
	var names []string
	for _, r := range all {
		names = append(names, r.Service)
	}
	all = slices.DeleteFunc(all, func(r install.Record) bool {
		return name != "" && r.Service != name && r.Service != "coracle-"+name
	})
	switch {
	case err != nil || len(all) == 0:
		return r, false, err
	case len(all) > 1:
		return r, false, exitcode.Usagef("several services are installed: say which with --name, of %s", strings.Join(names, ", "))
	}
	return all[0], true, nil
}
