package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/coracle-dev/coracle/pkg/core/ledger"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/machine/release"
)

// Uninstall takes an installation off the machine: what coracle made when it ran, and then what the record lists. With
// keepData, what the cluster and the node have kept on the disk stays. It returns files that it left because
// somebody has changed them. It can run again after a failure.
func (in *Installer) Uninstall(ctx context.Context, r Record, keepData bool) (left []string, err error) {
	if err := in.stop(ctx, r); err != nil {
		return nil, err
	}
	if err := in.Discard(ctx, r, !keepData); err != nil {
		return nil, err
	}
	left, err = in.remove(ctx, r, false)
	if err == nil && keepData {
		err = in.handOn(r)
	}
	return left, err
}

// handOn tells the data's own list of directories that are still in use: who removes the data removes them too.
func (in *Installer) handOn(r Record) error {
	for _, dir := range r.Made {
		if !paths.Exists(in.at(dir)) || !paths.Exists(in.at(r.Dirs.Data)) {
			continue
		}
		dirs := r.Dirs
		dirs.Data = in.at(dirs.Data)
		if err := ledger.Open(dirs).Note(ledger.Entry{Kind: ledger.Dir, Name: dir}); err != nil {
			return err
		}
	}
	return nil
}

// Stop ends an installation's service and all that it made when it ran, but not its data.
func (in *Installer) Stop(ctx context.Context, r Record) error {
	if err := in.stop(ctx, r); err != nil {
		return err
	}
	return in.Discard(ctx, r, false)
}

func (in *Installer) stop(ctx context.Context, r Record) error {
	if in.Manager == nil {
		return nil // who started it, or Discard, stops it
	}
	if err := in.Manager.Stop(ctx, r.Service); err != nil {
		return fmt.Errorf("stopping the service %s: %w", r.Service, err)
	}
	return nil
}

// clear takes back an installation that was killed.
func (in *Installer) clear(ctx context.Context, r Record) error {
	if err := in.stop(ctx, r); err != nil {
		return err
	}
	if err := in.Discard(ctx, r, r.OwnData); err != nil {
		return err
	}
	_, err := in.remove(ctx, r, true)
	return err
}

// remove removes what the record lists and no other record does.
func (in *Installer) remove(ctx context.Context, r Record, changedToo bool) (left []string, err error) {
	others, err := in.others(r.Service)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, l := range r.Links {
		if target, err := os.Readlink(in.at(l.Path)); err == nil && target == l.Target && !lists(others, l.Path) {
			errs = append(errs, gone(os.Remove(in.at(l.Path))))
		}
	}
	if in.Manager != nil {
		errs = append(errs, in.Manager.Disable(ctx, r.Service))
	}
	for _, f := range slices.Backward(r.Files) { // the executable is the first: it can be asked to go on as long as possible
		changed := !changedToo && f.Path != r.Binary && in.changed(f)
		switch {
		case lists(others, f.Path):
		case changed:
			left = append(left, f.Path)
		default:
			errs = append(errs, gone(os.Remove(in.at(f.Path))))
		}
	}
	if in.Manager != nil {
		errs = append(errs, in.Manager.Reload(ctx, r.Service))
	}
	if err := errors.Join(errs...); err != nil {
		return left, fmt.Errorf("removing what was installed: %w", err)
	}
	if err := in.forget(r.Service); err != nil {
		return left, err
	}
	var still []string
	for _, dir := range slices.Backward(r.Made) {
		if err := removeEmpty(in.at(dir)); err != nil || paths.Exists(in.at(dir)) {
			still = append(still, dir) // somebody uses it
		}
	}
	if len(others) == 0 {
		return left, removeEmpty(in.at(recordDir))
	}
	slices.Reverse(still)
	heir := others[0]
	heir.Made = append(still, heir.Made...)
	return left, in.save(heir)
}

// changed reports whether somebody has changed a file since it was written.
func (in *Installer) changed(f File) bool {
	digest, err := release.SumFile(in.at(f.Path))
	return err == nil && digest != f.SHA256
}
