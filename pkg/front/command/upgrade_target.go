package command

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/machine/initsystem"
	"github.com/coracle-dev/coracle/pkg/machine/install"
	"github.com/coracle-dev/coracle/pkg/machine/upgrade"
)

// findTarget finds the installed coracle of a name. Without a name there must be one only.
func findTarget(command, name string) (upgrade.Target, initsystem.Manager, error) {
	var none upgrade.Target
	if os.Geteuid() != 0 {
		return none, nil, exitcode.With(exitcode.Unfit, fmt.Errorf("coracle %s changes this machine, which only root may: sudo coracle %[1]s", command))
	}
	all, err := (install.Store{}).All()
	if err != nil {
		return none, nil, err
	}
	var names []string
	var found []install.Record
	for _, r := range all {
		names = append(names, r.Service)
		if name == "" || r.Service == name || r.Service == "coracle-"+name {
			found = append(found, r)
		}
	}
	switch {
	case len(all) == 0:
		return none, nil, notInstalled("/")
	case len(found) == 0:
		return none, nil, exitcode.Usagef("no service %s is installed here; there is %s", name, strings.Join(names, ", "))
	case len(found) > 1:
		return none, nil, exitcode.Usagef("several are installed here: say which is meant, with --name, of %s", strings.Join(names, ", "))
	}
	r := found[0]
	if !r.Complete {
		return none, nil, fmt.Errorf("the installation of %s was interrupted: run coracle install again", r.Service)
	}
	m, err := initsystem.Detect()
	if err != nil {
		return none, nil, err
	}
	return targetOf(r), m, nil
}

// targetOf converts the record of an installation.
func targetOf(r install.Record) upgrade.Target {
	return upgrade.Target{Service: r.Service, Binary: r.Binary, Dirs: r.Dirs, Server: r.Role == config.Server}
}

// notInstalled is the error where no coracle is a service of the machine whose root directory is given.
func notInstalled(root string) error {
	if contained(root) {
		return exitcode.Usagef("this is a container: run a new one from the image of the other version, with the same volumes")
	}
	why := "no coracle is installed as a service here"
	if _, err := initsystem.Detect(); errors.Is(err, initsystem.ErrNone) {
		why += ", because " + err.Error()
	}
	return exitcode.Usagef("%s. One that you start yourself is upgraded by stopping it, putting the other file in its place, and starting "+
		"it: pods run on. Keep the old file, and a copy of the data directory's server/ as it was while nothing ran", why)
}

// contained reports whether coracle is what a container runs: its first process, or the child of a container engine's init.
// A container with another first process is a machine like others.
func contained(root string) bool {
	first, err := os.Readlink(filepath.Join(root, "proc/1/exe"))
	if err != nil {
		return false
	}
	if self, err := os.Executable(); err == nil && first == self {
		return true
	}
	_, err = os.Stat(filepath.Join(root, ".dockerenv"))
	return err == nil && slices.Contains([]string{"docker-init", "tini", "catatonit"}, filepath.Base(first))
}
