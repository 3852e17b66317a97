package install

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
)

// undo has the functions that undo the steps so far. They run in reverse order.
type undo struct {
	steps []func() error
}

func (u *undo) add(step func() error) { u.steps = append(u.steps, step) }

// run undoes everything. It continues after failures and returns all of them.
func (u *undo) run() error {
	var errs []error
	for _, step := range slices.Backward(u.steps) {
		errs = append(errs, step())
	}
	u.steps = nil
	return errors.Join(errs...)
}

// keep remembers the content of a file before it is written. Use keepAside for large files.
func (u *undo) keep(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		u.add(func() error { return gone(os.Remove(path)) })
		return nil
	case err != nil:
		return err
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(path)
		if err != nil {
			return err
		}
		u.add(func() error { return errors.Join(gone(os.Remove(path)), os.Symlink(target, path)) })
		return nil
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is in the way: it is no regular file", path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	u.add(func() error {
		if now, err := os.ReadFile(path); err == nil && string(now) == string(data) {
			return nil
		}
		return atomicfile.Write(path, data, info.Mode().Perm())
	})
	return nil
}

// keepAside is keep for a file that will be replaced by a rename: it gives the old file a second name, which done removes.
func (u *undo) keepAside(path string) (done func(), err error) {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		u.add(func() error { return gone(os.Remove(path)) })
		return func() {}, nil
	}
	aside := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".before")
	if err := gone(os.Remove(aside)); err != nil {
		return nil, err
	}
	if err := os.Link(path, aside); err != nil {
		return nil, fmt.Errorf("keeping %s aside: %w", path, err)
	}
	u.add(func() error { return os.Rename(aside, path) })
	return func() { _ = os.Remove(aside) }, nil
}

// mkdirAll makes a directory and its parents and returns those that were missing, parents first.
func (u *undo) mkdirAll(path string, mode fs.FileMode) (made []string, err error) {
	var missing []string
	for p := filepath.Clean(path); ; p = filepath.Dir(p) {
		if _, err := os.Stat(p); err == nil {
			break
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("making directory %s: %w", path, err)
		}
		missing = append(missing, p)
	}
	for _, p := range slices.Backward(missing) {
		if err := os.Mkdir(p, mode); err != nil && !errors.Is(err, fs.ErrExist) {
			return made, fmt.Errorf("making directory: %w", err)
		}
		made = append(made, p)
		u.add(func() error { return removeEmpty(p) })
	}
	return made, nil
}

// removeEmpty removes a directory if it is empty.
func removeEmpty(path string) error {
	if files, err := os.ReadDir(path); err != nil || len(files) > 0 {
		return gone(err)
	}
	return gone(os.Remove(path))
}

// gone returns nil for the error that something does not exist.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
