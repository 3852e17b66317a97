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

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/machine/initsystem"
)

// installation is one call of Install.
type installation struct {
	*Installer
	Spec
	old     Record
	there   bool // old exists
	running bool // the old service runs
	coming  bool // it is not ready yet
	upgrade bool // the executable is replaced
	record  Record
	undo    undo
	taken   []string
	done    []func() // after success
	changed bool
	rewrote bool // a file changed that the service reads at its start
	started bool
	touched bool // a start of the service was requested
	ownData bool // the data directory was missing or empty before
}

// survey finds out what is installed.
func (i *installation) survey(ctx context.Context) error {
	if i.Manager != nil && i.there {
		state, err := i.Manager.State(ctx, i.Service)
		if err != nil {
			return err
		}
		i.coming = state.Running == initsystem.Starting
		i.running = state.Running == initsystem.Ready || i.coming
	}
	if !i.there {
		return nil
	}
	same, err := i.sameFile(i.Self, i.Binary())
	if errors.Is(err, os.ErrNotExist) {
		return nil // it was removed by hand, and is installed again
	}
	i.upgrade = !same && i.running
	if err == nil && !same && !i.running && i.Step != nil {
		return i.Step(ctx, i.old, i.Self)
	}
	return err
}

// Binary is the path of the installed executable.
func (i *installation) Binary() string { return i.Spec.binary() }

// run does all steps; each can be undone.
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

// rollBack undoes all steps. It returns why, joined with the errors of steps that cannot be undone.
func (i *installation) rollBack(ctx context.Context, why error) error {
	i.Say("undoing what was done")
	i.undoStart(context.WithoutCancel(ctx))
	if err := i.undo.run(); err != nil {
		return fmt.Errorf("%w\nNot everything could be undone: %w", why, err)
	}
	text := "nothing of it is left on this machine"
	if i.there {
		text = "the installation is as it was before"
	}
	if i.upgrade {
		text = i.Version + " has replaced the previous version, and the rest is as it was; coracle rollback restores that too"
	}
	return fmt.Errorf("%w\ncoracle was not installed; %s.", why, text)
}

// undoStart adds the stop or restart of the service to the steps that are undone.
func (i *installation) undoStart(ctx context.Context) {
	if !i.touched {
		return
	}
	steps := i.undo.steps
	i.undo.steps = nil
	if i.there { // after all files are as before
		if i.running {
			i.undo.add(func() error {
				ctx, cancel := context.WithTimeout(ctx, max(i.Wait, time.Minute))
				defer cancel()
				return i.Manager.Restart(ctx, i.Service)
			})
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
		return i.Discard(ctx, i.record, i.ownData)
	})
}

// plan writes the record before anything is made.
func (i *installation) plan(context.Context) error {
	data, err := os.ReadDir(i.at(i.Config.Dirs.Data))
	i.ownData = len(data) == 0 && gone(err) == nil
	i.record = Record{
		Service: i.Service, Version: i.Version, Role: i.Role, Args: i.Args, Binary: i.Binary(), Dirs: i.Config.Dirs,
		Kubeconfig: i.Config.API.KubeconfigPath, Links: []Link{}, Made: []string{},
	}
	if i.Manager != nil {
		i.record.Init = i.Manager.Name()
	}
	if i.there { // what coracle made before is still coracle's
		i.record.Complete = true
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

// write writes one file, unless it has the right content.
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
