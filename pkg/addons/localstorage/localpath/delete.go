package localpath

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Delete removes the directory and its content if the directory is this volume's and nothing is mounted in it. It can be
// called again after a crash at any line. It renames the directory first, so that Create can make another one, and then
// calls release, which releases what Create's limit took, before it removes the content.
func (v Volume) Delete(release func(dir *os.File) error) error {
	waste := deleted + v.PV
	if err := v.FinishDelete(); err != nil { // left by a crash
		return err
	}
	return v.withDir(func(root *os.Root, dir *os.File) error {
		if err := v.mayDelete(dir); err != nil {
			return err
		}
		if err := v.putAside(root, dir); err != nil {
			return err
		}
		if release != nil {
			if err := release(dir); err != nil {
				return fmt.Errorf("giving back the quota of %s: %w", v.Path(), err)
			}
		}
		if err := root.RemoveAll(waste); err != nil {
			return fmt.Errorf("removing what was %s: %w", v.Path(), err)
		}
		removeParents(root, v.Folder)
		return nil
	})
}

// RemoveEmpty removes the directory if it is this volume's and empty, and reports whether it is gone. release is as in
// Delete.
func (v Volume) RemoveEmpty(release func(dir *os.File) error) (gone bool, err error) {
	gone = true
	err = v.withDir(func(root *os.Root, dir *os.File) error {
		if v.mayDelete(dir) != nil || root.Remove(v.Folder) != nil {
			gone = false
			return nil
		}
		removeParents(root, v.Folder)
		if err := release(dir); err != nil {
			return fmt.Errorf("giving back the quota of %s: %w", v.Path(), err)
		}
		return nil
	})
	return gone && err == nil, err
}

// removeParents removes the parent directories that are empty now.
func removeParents(root *os.Root, folder string) {
	for parent := filepath.Dir(folder); parent != "."; parent = filepath.Dir(parent) {
		if root.Remove(parent) != nil {
			return // it is not empty
		}
	}
}

// putAside renames the directory, which dir is open on, so that it is out of the way of others. If dir is not the one that
// was renamed, it renames it back and returns an error: inside a directory that pods can write to, a pod may have exchanged
// it after it was opened.
func (v Volume) putAside(root *os.Root, dir *os.File) error {
	waste := deleted + v.PV
	if err := root.Rename(v.Folder, waste); err != nil {
		return fmt.Errorf("putting %s aside: %w", v.Path(), err)
	}
	was, err := dir.Stat()
	if err == nil {
		var is fs.FileInfo
		is, err = root.Lstat(waste)
		if errors.Is(err, fs.ErrNotExist) || err == nil && os.SameFile(was, is) { // FinishDeletes may have removed it already
			return nil
		}
	}
	return errors.Join(fmt.Errorf("%s was replaced while it was to be removed: it is not removed", v.Path()), err, root.Rename(waste, v.Folder))
}

// mayDelete returns an error that says why the directory must not be removed.
func (v Volume) mayDelete(dir *os.File) error {
	owner, marked := markOf(dir)
	switch {
	case marked && owner != v.PV:
		return fmt.Errorf("%s is the folder of volume %s by now: it is not removed", v.Path(), owner)
	case !marked && !v.namedAfterPV():
		return fmt.Errorf("%s was not made by coracle for this volume: it is not removed; remove the folder yourself, or set the "+
			"reclaim policy of %s to Retain", v.Path(), v.PV)
	}
	real, err := filepath.EvalSymlinks(v.Path())
	if err != nil {
		return fmt.Errorf("looking at %s: %w", v.Path(), err)
	}
	mounts, err := MountPoints()
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(mounts, func(m string) bool { return m == real || strings.HasPrefix(m, real+"/") }); i >= 0 {
		return fmt.Errorf("something is mounted at %s: it is not removed until that is unmounted", mounts[i])
	}
	return nil
}

// FinishDelete removes what an interrupted Delete has renamed. That takes long if there is much in it.
func (v Volume) FinishDelete() error {
	return inBase(v.Base, func(root *os.Root) error { return removeAside(root, deleted+v.PV) })
}

// FinishDeletes does what FinishDelete does for all volumes of a directory, until ctx is done.
func FinishDeletes(ctx context.Context, base string) error {
	return inBase(base, func(root *os.Root) error {
		entries, err := fs.ReadDir(root.FS(), ".")
		if err != nil {
			return fmt.Errorf("listing %s: %w", base, err)
		}
		var errs []error
		for _, e := range entries {
			if ctx.Err() == nil {
				errs = append(errs, removeAside(root, e.Name()))
			}
		}
		return errors.Join(errs...)
	})
}

// inBase calls do with a directory of volumes, if it exists.
func inBase(base string, do func(root *os.Root) error) error {
	root, err := os.OpenRoot(base)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("opening the directory of local volumes: %w", err)
	}
	defer root.Close()
	return do(root)
}

// withDir calls do with the directory, if it exists.
func (v Volume) withDir(do func(root *os.Root, dir *os.File) error) error {
	return inBase(v.Base, func(root *os.Root) error {
		dir, err := openDir(root, v.Folder)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("opening %s: %w", v.Path(), err)
		}
		defer dir.Close()
		return do(root, dir)
	})
}

// unmarked matches the names of renamed directories that need no mark.
var unmarked = regexp.MustCompile("^" + regexp.QuoteMeta(deleted) + pvName + "$")

// removeAside removes a directory that Delete has renamed. It leaves other files with similar names alone.
func removeAside(root *os.Root, name string) error {
	pv, aside := strings.CutPrefix(name, deleted)
	if !aside {
		return nil
	}
	if !unmarked.MatchString(name) {
		dir, err := openDir(root, name)
		if err != nil {
			return nil //nolint:nilerr // not a directory of this package
		}
		owner, _ := markOf(dir)
		dir.Close()
		if owner != pv {
			return nil
		}
	}
	if err := root.RemoveAll(name); err != nil {
		return fmt.Errorf("removing %s: %w", filepath.Join(root.Name(), name), err)
	}
	return nil
}
