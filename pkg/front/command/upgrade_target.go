package command

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/machine/initsystem"
	"github.com/coracle-dev/coracle/pkg/machine/install"
	"github.com/coracle-dev/coracle/pkg/machine/upgrade"
)

// findTarget finds the installed coracle that a command is about.
func findTarget(command, name string) (t upgrade.Target, m initsystem.Manager, err error) {
	r, err := theInstalled(command, name)
	switch {
	case errors.Is(err, errNotInstalled):
		return t, nil, notInstalled("/")
	case err != nil:
		return t, nil, err
	case !r.Complete:
		return t, nil, fmt.Errorf("the installation of %s was interrupted: run coracle install again", r.Service)
	}
	m, err = initsystem.Detect()
	return targetOf(r), m, err
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
