package install

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/machine/release"
)

// executable installs the executable, unless an upgrade has done that.
func (i *installation) executable(context.Context) error {
	path := i.Binary()
	if same, err := i.sameFile(i.Self, path); err == nil && same {
		return i.share(path)
	}
	i.Say("installing " + path)
	if err := i.makeDir(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	digest, err := release.SumFile(i.Self)
	if err != nil {
		return err
	}
	done, err := i.undo.keepAside(i.at(path))
	if err != nil {
		return err
	}
	i.done = append(i.done, done)
	if err := i.enter(path, digest); err != nil {
		return err
	}
	i.changed = true
	i.rewrote = true
	if err := atomicfile.Copy(i.Self, i.at(path), 0o755); err != nil {
		return err
	}
	return i.label(path)
}

// share records an executable that another service has installed. One that was installed by hand is not recorded, so that
// uninstall leaves it.
func (i *installation) share(path string) error {
	others, err := i.others(i.Service)
	if err != nil || i.record.has(path) || !lists(others, path) {
		return err
	}
	digest, err := release.SumFile(i.at(path))
	if err != nil {
		return err
	}
	return i.enter(path, digest)
}

// makeLinks makes the links that are missing.
func (i *installation) makeLinks(context.Context) error {
	links, taken := i.links(i.Spec)
	i.taken = taken
	for _, l := range links {
		if target, err := os.Readlink(i.at(l.Path)); err == nil && target == l.Target && slices.Contains(i.record.Links, l) {
			continue
		}
		if info, err := os.Lstat(i.at(l.Path)); err == nil && info.Mode()&os.ModeSymlink == 0 {
			return fmt.Errorf("%s is in the way: it is not a link of coracle's; move it away", l.Path)
		}
		if !slices.Contains(i.record.Links, l) {
			i.record.Links = append(i.record.Links, l)
			if err := i.save(i.record); err != nil {
				return err
			}
		}
		if err := i.undo.keep(i.at(l.Path)); err != nil {
			return err
		}
		if err := gone(os.Remove(i.at(l.Path))); err != nil {
			return fmt.Errorf("making link: %w", err)
		}
		if err := os.Symlink(l.Target, i.at(l.Path)); err != nil {
			return fmt.Errorf("making link: %w", err)
		}
		i.changed = true
	}
	return nil
}

func (i *installation) writeEnvironment(context.Context) error {
	changed, err := i.write(i.environment())
	i.rewrote = i.rewrote || changed
	return err
}

func (i *installation) writeCompletions(context.Context) error {
	for _, f := range i.completions(i.record.Links) {
		if _, err := os.Lstat(i.at(f.path)); err == nil && !i.record.has(f.path) {
			continue // it is not coracle's
		}
		if _, err := i.write(f); err != nil {
			i.Say(fmt.Sprintf("no completion: %v", err))
		}
	}
	return nil
}

// writeService installs the service in the init system.
func (i *installation) writeService(ctx context.Context) error {
	if i.Manager == nil {
		return nil
	}
	i.undo.add(func() error { return i.Manager.Reload(context.WithoutCancel(ctx), i.Service) })
	path := i.Manager.File(i.Service)
	before, err := os.ReadFile(i.at(path))
	if err == nil && !i.record.has(path) {
		return exitcode.With(exitcode.Unfit, fmt.Errorf("%s is there already, and coracle install did not write it: move it away, or choose another --name", path))
	}
	if err := i.makeDir(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := i.undo.keep(i.at(path)); err != nil {
		return err
	}
	if err := i.enter(path, sum(before)); err != nil {
		return err
	}
	if err := i.Manager.Install(ctx, i.unit()); err != nil {
		return fmt.Errorf("making %s a service of %s: %w", i.Service, i.Manager.Name(), err)
	}
	data, err := os.ReadFile(i.at(path))
	if err != nil {
		return err
	}
	if !bytes.Equal(data, before) {
		i.changed, i.rewrote = true, true
	}
	return i.enter(path, sum(data))
}

// enable enables or disables the start at boot.
func (i *installation) enable(ctx context.Context) error {
	if i.Manager == nil {
		return nil
	}
	state, err := i.Manager.State(ctx, i.Service)
	if err != nil {
		return err
	}
	back := context.WithoutCancel(ctx)
	switch {
	case i.Enable && !state.Enabled:
		i.changed = true
		i.undo.add(func() error { return i.Manager.Disable(back, i.Service) })
		return i.Manager.Enable(ctx, i.Service)
	case !i.Enable && state.Enabled && !i.there:
		return i.Manager.Disable(ctx, i.Service)
	}
	return nil
}

// start starts the service, or restarts it if its settings have changed. Pods run on meanwhile.
func (i *installation) start(ctx context.Context) error {
	if !i.Start || i.Manager == nil || i.running && !i.rewrote {
		if i.Start && i.coming {
			i.Say("waiting for " + i.Service + ", which is starting already")
			i.started = true
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, i.Wait)
	defer cancel()
	i.touched, i.started, i.changed = true, true, true
	if i.running {
		i.Say("restarting " + i.Service + ", because its settings have changed; pods run on")
		return i.Manager.Restart(ctx, i.Service)
	}
	i.Say("starting " + i.Service)
	return i.Manager.Start(ctx, i.Service)
}

// ready waits until the started service is ready.
func (i *installation) ready(ctx context.Context) error {
	if !i.started || i.Ready == nil {
		return nil
	}
	within, cancel := context.WithTimeout(ctx, i.Wait)
	defer cancel()
	err := i.Ready(within)
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		return exitcode.With(exitcode.TimedOut, err)
	}
	return err
}

// complete marks the record as complete.
func (i *installation) complete(context.Context) error {
	i.record.Complete = true
	return i.save(i.record)
}
