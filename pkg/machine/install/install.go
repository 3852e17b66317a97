// Package install installs coracle as a service and uninstalls it: the executable, the service and its environment
// variables, links and shell completions. It writes everything into a Record before it makes it, and undoes all steps if
// one fails, so that an installation is complete or absent.
//
// Package initsystem knows the init systems, and package reset removes what coracle makes when it runs.
package install

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/machine/initsystem"
)

// Spec says what to install.
type Spec struct {
	Service string
	Role    config.Role
	// Args are the role's arguments, Environment the service's variables, and Config the configuration that results.
	Args        []string
	Environment []string
	Config      config.Config
	BinDir      string
	Self        string // the executable to install
	Version     string
	Enable      bool // start the service at boot
	Start       bool // start the service now
	// Wait is how long the service may take to become ready.
	Wait time.Duration
}

// Installer installs on a machine. Its functions do everything that is not about files.
type Installer struct {
	Store
	// Manager is the machine's init system; nil if coracle does not support it.
	Manager initsystem.Manager
	// Say is called with a description of each step, for people.
	Say func(string)
	// Look finds a command in PATH; nil is exec.LookPath.
	Look func(name string) (string, error)
	// Check returns why the machine cannot run coracle. It is called before anything is changed.
	Check func() error
	// Ready returns when the started service can be used.
	Ready func(context.Context) error
	// Discard removes what a stopped service made when it ran; its data only if data is true.
	Discard func(ctx context.Context, r Record, data bool) error
	// Upgrade replaces an installed executable, or fails and changes nothing.
	Upgrade func(ctx context.Context, r Record, file string) error
	// Step returns why file must not replace the executable of a stopped service; nil allows every file.
	Step func(ctx context.Context, r Record, file string) error
	// step is called with the name of each step before it is done; tests make it fail.
	step func(name string) error
}

// Done says what Install did.
type Done struct {
	Record  Record
	Changed bool // anything at all
	Started bool // the service was started or restarted, or was starting already, and is ready
	// Upgraded says that there was another executable before.
	Upgraded bool
	// Taken are commands of the machine with the names of links that therefore were not made.
	Taken []string
}

func (in *Installer) at(path string) string { return filepath.Join(in.Root, path) }

// Install installs w, or changes an installation to w. If that fails, everything is as before.
func (in *Installer) Install(ctx context.Context, w Spec) (done Done, err error) {
	old, there, err := in.Load(w.Service)
	if err != nil {
		return Done{}, err
	}
	in.completing(&w)
	if there && !old.Complete {
		in.Say("cleaning up after an installation that was interrupted")
		if err := in.clear(ctx, old); err != nil {
			return Done{}, fmt.Errorf("cleaning up after an installation that was interrupted: %w", err)
		}
		old, there = Record{}, false
		if !paths.Exists(w.Self) { // it was a file of that installation
			w.Self = "/proc/self/exe"
		}
	}
	if err := in.conflicts(w, old, there); err != nil {
		return Done{}, err
	}
	i := &installation{Installer: in, Spec: w, old: old, there: there}
	if err := i.survey(ctx); err != nil {
		return Done{}, err
	}
	if w.Start && !i.running && in.Check != nil { // an image that is being built need not be able to run coracle
		if err := in.Check(); err != nil {
			return Done{}, err
		}
	}
	if i.upgrade {
		if err := in.Upgrade(ctx, old, w.Self); err != nil {
			return Done{}, err
		}
	}
	if err := i.run(ctx); err != nil {
		return Done{}, i.rollBack(ctx, err)
	}
	return Done{Record: i.record, Changed: i.changed || i.upgrade, Started: i.started, Upgraded: i.upgrade, Taken: i.taken}, nil
}

// completing sets the fields of w that follow from the others.
func (in *Installer) completing(w *Spec) {
	if in.Say == nil {
		in.Say = func(string) {}
	}
	if in.step == nil {
		in.step = func(string) error { return nil }
	}
	if w.Args == nil {
		w.Args = []string{}
	}
}

// conflicts returns why w cannot be installed beside the installations that exist.
func (in *Installer) conflicts(w Spec, old Record, there bool) error {
	others, err := in.others(w.Service)
	if err != nil {
		return err
	}
	for _, o := range others {
		switch {
		case o.Dirs.Data == w.Config.Dirs.Data || o.Dirs.Run == w.Config.Dirs.Run || o.Dirs.Kubelet == w.Config.Dirs.Kubelet:
			return exitcode.Usagef("this machine is installed as %s already, by the service %s, which uses the same directories: take that off with "+
				"coracle uninstall first; or, for a second one beside it, give --name, and directories and ports of its own", article(o.Role), o.Service)
		case o.Binary == w.binary():
			same, err := in.sameFile(w.Self, o.Binary)
			if err != nil {
				return err
			}
			if !same {
				return exitcode.Usagef("%s is another version, and the service %s runs it: upgrade that one with coracle upgrade first, or give another --bin-dir",
					o.Binary, o.Service)
			}
		}
	}
	switch {
	case there && old.Dirs != w.Config.Dirs:
		return exitcode.Usagef("%s is installed with the directories %s and %s, and they cannot be changed to %s and %s afterwards: take it off with "+
			"coracle uninstall first", old.Service, old.Dirs.Data, old.Dirs.Run, w.Config.Dirs.Data, w.Config.Dirs.Run)
	case there && old.Role != w.Role:
		return exitcode.Usagef("%s is installed as %s: take it off with coracle uninstall first", old.Service, article(old.Role))
	case there && old.Binary != w.binary():
		return exitcode.Usagef("%s is installed in %s: give --bin-dir %[2]s, or take it off with coracle uninstall first", old.Service, filepath.Dir(old.Binary))
	}
	return nil
}

func article(role config.Role) string {
	if role == config.Agent {
		return "an agent"
	}
	return "a server"
}
