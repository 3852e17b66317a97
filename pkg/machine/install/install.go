// Package install puts coracle on a machine as a service, and takes it off again: the executable, the service and its
// variables, links and completions. Everything that it makes is in a Record before it is made; whatever fails is taken
// back, so that a machine has all of an installation or nothing of it.
//
// What an init system is told is package initsystem's business, and what coracle makes when it runs is package reset's.
package install

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/machine/initsystem"
)

// Wanted is what is to be installed.
type Wanted struct {
	Service string
	Role    config.Role
	// Args are the role's arguments and Environment the service's variables. Config is what they mean.
	Args        []string
	Environment []string
	Config      config.Config
	BinDir      string
	Self        string // the executable to install
	Version     string
	Enable      bool // at boot
	Start       bool // now
	// Wait is how long it may take until it can be used.
	Wait time.Duration
}

// Installer changes a machine. Its functions are what a machine does besides keeping files.
type Installer struct {
	Store
	// Manager is the machine's init system, nil if that is none that coracle knows.
	Manager initsystem.Manager
	// Say is told each step, for people.
	Say func(string)
	// Look finds a command in PATH; nil is exec.LookPath.
	Look func(name string) (string, error)
	// Check says what keeps the machine from running this, before anything is changed.
	Check func() error
	// Ready returns when the started service can be used.
	Ready func(context.Context) error
	// Discard takes away what a service made when it ran, which has stopped: with its data, or all but that.
	Discard func(ctx context.Context, r Record, data bool) error
	// Upgrade puts another executable in the place of an installed one, or leaves all as it was.
	Upgrade func(ctx context.Context, r Record, file string) error
	// Step says why another executable must not take the place of the one of a service that is stopped; nil allows all.
	Step func(ctx context.Context, r Record, file string) error
	// step is told the name of each step before it is done; a test fails it there.
	step func(name string) error
}

// Done says what Install did.
type Done struct {
	Record  Record
	Changed bool // anything at all
	Started bool // the service was started or restarted, and can be used
	// Upgraded says that there was another executable before.
	Upgraded bool
	// Taken are commands of the machine's own whose names links would have had.
	Taken []string
}

func (in *Installer) at(path string) string { return filepath.Join(in.Root, path) }

// Install installs what is wanted, or makes an installation be what is wanted. If that fails it is as it was before.
func (in *Installer) Install(ctx context.Context, w Wanted) (done Done, err error) {
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
	}
	if err := in.conflicts(w, old, there); err != nil {
		return Done{}, err
	}
	i := &installation{Installer: in, Wanted: w, old: old, there: there}
	if err := i.survey(ctx); err != nil {
		return Done{}, err
	}
	if w.Start && !i.running && in.Check != nil { // an image that is being built need not be able to run it
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
		return Done{}, i.takeBack(ctx, err)
	}
	return Done{Record: i.record, Changed: i.changed || i.upgrade, Started: i.started, Upgraded: i.upgrade, Taken: i.taken}, nil
}

// completing fills in what can be told from the rest.
func (in *Installer) completing(w *Wanted) {
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

// conflicts says what keeps an installation from standing beside others.
func (in *Installer) conflicts(w Wanted, old Record, there bool) error {
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
