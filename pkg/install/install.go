// Package install puts coracle on a machine as a service, and takes it off again: the executable, the service and its
// variables, links and completions. Everything that it makes is in a Record before it is made; whatever fails is taken
// back, so that a machine has all of an installation or nothing of it.
//
// What an init system is told is package service's business, and what coracle makes when it runs is package reset's.
package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/coracle-dev/coracle/pkg/atomicfile"
	"github.com/coracle-dev/coracle/pkg/complain"
	"github.com/coracle-dev/coracle/pkg/config"
	"github.com/coracle-dev/coracle/pkg/service"
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
	Manager service.Manager
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
	if !i.running && in.Check != nil {
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
			return complain.Usagef("this machine is installed as %s already, by the service %s, which uses the same directories: take that off with "+
				"coracle uninstall first; or, for a second one beside it, give --name, and directories and ports of its own", article(o.Role), o.Service)
		case o.Binary == w.binary():
			same, err := in.sameFile(w.Self, o.Binary)
			if err != nil {
				return err
			}
			if !same {
				return complain.Usagef("%s is another version, and the service %s runs it: upgrade that one with coracle upgrade first, or give another --bin-dir",
					o.Binary, o.Service)
			}
		}
	}
	switch {
	case there && old.Dirs != w.Config.Dirs:
		return complain.Usagef("%s is installed with the directories %s and %s, and they cannot be changed to %s and %s afterwards: take it off with "+
			"coracle uninstall first", old.Service, old.Dirs.Data, old.Dirs.Run, w.Config.Dirs.Data, w.Config.Dirs.Run)
	case there && old.Role != w.Role:
		return complain.Usagef("%s is installed as %s: take it off with coracle uninstall first", old.Service, article(old.Role))
	case there && old.Binary != w.binary():
		return complain.Usagef("%s is installed in %s: give --bin-dir %[2]s, or take it off with coracle uninstall first", old.Service, filepath.Dir(old.Binary))
	}
	return nil
}

func article(role config.Role) string {
	if role == config.Agent {
		return "an agent"
	}
	return "a server"
}

// installation is one call of Install.
type installation struct {
	*Installer
	Wanted
	old     Record
	there   bool // there is an old one
	running bool // its service runs
	upgrade bool // another executable is wanted
	record  Record
	undo    undo
	taken   []string
	done    []func() // after success
	changed bool
	rewrote bool // of what the service reads at its start
	started bool
	touched bool // the service was told to start
}

// survey finds out what there is.
func (i *installation) survey(ctx context.Context) error {
	if i.Manager != nil && i.there {
		state, err := i.Manager.State(ctx, i.Service)
		if err != nil {
			return err
		}
		i.running = state.Running == service.Ready || state.Running == service.Starting
	}
	if !i.there {
		return nil
	}
	same, err := i.sameFile(i.Self, i.Binary())
	if errors.Is(err, os.ErrNotExist) {
		return nil // somebody removed it: it is put there again
	}
	i.upgrade = !same && i.running
	return err
}

// Binary is where the executable is to be.
func (i *installation) Binary() string { return i.Wanted.binary() }

// run does all steps, each of which can be taken back.
func (i *installation) run(ctx context.Context) error {
	steps := []struct {
		name string
		do   func(context.Context) error
	}{
		{"record", i.plan},
		{"executable", i.executable},
		{"links", i.makeLinks},
		{"variables", i.writeEnvironment},
		{"completion", i.writeCompletions},
		{"service", i.writeService},
		{"enable", i.enable},
		{"start", i.start},
		{"ready", i.ready},
		{"complete", i.complete},
	}
	for _, s := range steps {
		if err := ctx.Err(); err != nil {
			return errors.New("interrupted")
		}
		if err := i.step(s.name); err != nil {
			return err
		}
		if err := s.do(ctx); err != nil {
			return err
		}
	}
	for _, f := range i.done {
		f()
	}
	return nil
}

// takeBack makes everything as it was before and adds to why what could not be.
func (i *installation) takeBack(ctx context.Context, why error) error {
	i.Say("taking back what was done")
	i.ctxUndo(context.WithoutCancel(ctx))
	if err := i.undo.run(); err != nil {
		return fmt.Errorf("%w\nNot everything could be taken back: %w", why, err)
	}
	text := "nothing of it is left on this machine"
	if i.there {
		text = "the installation is as it was before"
	}
	return fmt.Errorf("%w\nThat is why it was not installed; %s.", why, text)
}

// ctxUndo adds what ends the service: the first thing to take back, before its files go.
func (i *installation) ctxUndo(ctx context.Context) {
	if !i.touched {
		return
	}
	steps := i.undo.steps
	i.undo.steps = nil
	if i.there { // after all files are as before
		if i.running {
			i.undo.add(func() error { return i.Manager.Restart(ctx, i.Service) })
		} else {
			i.undo.add(func() error { return i.Manager.Stop(ctx, i.Service) })
		}
		i.undo.add(func() error { return i.Manager.Reload(ctx, i.Service) })
		i.undo.steps = append(i.undo.steps, steps...)
		return
	}
	i.undo.steps = append(i.undo.steps, steps...)
	i.undo.add(func() error {
		if err := i.Manager.Stop(ctx, i.Service); err != nil {
			return err
		}
		return i.Discard(ctx, i.record, i.record.OwnData)
	})
}

// plan writes down what will be made, before it is.
func (i *installation) plan(context.Context) error {
	data, err := os.ReadDir(i.at(i.Config.Dirs.Data))
	i.record = Record{
		Service: i.Service, Version: i.Version, Role: i.Role, Args: i.Args, Binary: i.Binary(), Dirs: i.Config.Dirs,
		Kubeconfig: i.Config.API.KubeconfigPath, OwnData: len(data) == 0 && gone(err) == nil, Links: []Link{}, Made: []string{},
	}
	if i.Manager != nil {
		i.record.Init = i.Manager.Name()
	}
	if i.there { // what was ours stays so
		i.record.OwnData, i.record.Complete = i.old.OwnData, true
		i.record.Files, i.record.Made = slices.Clone(i.old.Files), slices.Clone(i.old.Made)
		i.record.Links = slices.Clone(i.old.Links)
	}
	if err := i.makeDir(recordDir, 0o755); err != nil {
		return err
	}
	if err := i.undo.keep(i.path(i.Service)); err != nil {
		return err
	}
	return i.save(i.record)
}

// makeDir makes a directory and enters what was missing into the record.
func (i *installation) makeDir(path string, mode os.FileMode) error {
	made, err := i.undo.mkdirAll(i.at(path), mode)
	for _, dir := range made {
		i.record.Made = append(i.record.Made, strings.TrimPrefix(dir, strings.TrimSuffix(i.Root, "/")))
	}
	return err
}

// enter notes a file in the record before it is written.
func (i *installation) enter(path, digest string) error {
	entry := File{path, digest}
	if slices.Contains(i.record.Files, entry) {
		return nil
	}
	i.record.Files = slices.DeleteFunc(i.record.Files, func(f File) bool { return f.Path == path })
	i.record.Files = append(i.record.Files, entry)
	return i.save(i.record)
}

// write writes one file, unless it is as it should be.
func (i *installation) write(f file) (changed bool, err error) {
	if err := i.makeDir(filepath.Dir(f.path), 0o755); err != nil {
		return false, err
	}
	if err := i.undo.keep(i.at(f.path)); err != nil {
		return false, err
	}
	if err := i.enter(f.path, sum(f.data)); err != nil {
		return false, err
	}
	changed, err = atomicfile.WriteIfChanged(i.at(f.path), f.data, f.mode)
	i.changed = i.changed || changed
	return changed, err
}
