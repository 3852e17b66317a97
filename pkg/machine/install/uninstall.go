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

// Uninstall removes what coracle made when it ran, and then what the record lists. With keepData, it keeps the data of cluster
// and node. It returns the files that it kept because they were changed. It can run again after a failure.
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

// handOn notes directories that still exist in the ledger of the data directory, so that a later reset removes them.
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

// Stop stops an installation's service and removes what it made when it ran, except its data.
func (in *Installer) Stop(ctx context.Context, r Record) error {
	if err := in.stop(ctx, r); err != nil {
		return err
	}
	return in.Discard(ctx, r, false)
}

// Halt stops the service with a data directory, if one is installed: otherwise the init system would start it again. The service's pods run on.
func (in *Installer) Halt(ctx context.Context, data string) error {
	r, ok, _ := in.ByData(data) // without a record that can be read, what runs is still found
	if !ok {
		return nil
	}
	return in.stop(ctx, r)
}

func (in *Installer) stop(ctx context.Context, r Record) error {
	if in.Manager == nil {
		return nil // Discard stops it
	}
	if err := in.Manager.Stop(ctx, r.Service); err != nil {
		return fmt.Errorf("stopping the service %s: %w", r.Service, err)
	}
	return nil
}

// clear removes an installation that was interrupted. Its data stays: the installer made none, and a boot may have started the service since.
func (in *Installer) clear(ctx context.Context, r Record) error {
	if err := in.Stop(ctx, r); err != nil {
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
	for _, f := range slices.Backward(r.Files) { // the executable is removed last, so that uninstall can be repeated
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
		return left, fmt.Errorf("removing the installation: %w", err)
	}
	if err := in.forget(r.Service); err != nil {
		return left, err
	}
	var still []string
	for _, dir := range slices.Backward(r.Made) {
		if err := removeEmpty(in.at(dir)); err != nil || paths.Exists(in.at(dir)) {
			still = append(still, dir) // another program uses it
		}
	}
	if len(others) == 0 {
		return left, removeEmpty(in.at(recordDir))
	}
	slices.Reverse(still)
	next := others[0] // it removes the directories that remain
	next.Made = append(still, next.Made...)
	return left, in.save(next)
}

// changed reports whether a file has been changed since it was written.
func (in *Installer) changed(f File) bool {
	digest, err := release.SumFile(in.at(f.Path))
	return err == nil && digest != f.SHA256
}
