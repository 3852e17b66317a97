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

// Delete removes the folder with all in it, if it is this volume's and nothing is mounted in it. It can be called
// again after a crash at any line. release is called with the folder when it has been put aside, so that Create can make
// another, and before it is removed; it gives back what Create's limit took.
func (v Volume) Delete(release func(dir *os.File) error) error {
	root, err := os.OpenRoot(v.Base)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("opening the directory of local volumes: %w", err)
	}
	defer root.Close()
	waste := deleted + v.PV
	if err := removeAside(root, waste); err != nil { // of a crash, unless FinishDelete was called
		return err
	}
	dir, err := openDir(root, v.Folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("opening %s: %w", v.Path(), err)
	}
	defer dir.Close()
	if err := v.mayDelete(dir); err != nil {
		return err
	}
	if err := root.Rename(v.Folder, waste); err != nil {
		return fmt.Errorf("putting %s aside: %w", v.Path(), err)
	}
	if err := v.isAside(root, dir); err != nil {
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
}

// RemoveEmpty removes the folder if it is this volume's and nothing is in it, and reports whether it is gone. release is as
// in Delete.
func (v Volume) RemoveEmpty(release func(dir *os.File) error) (gone bool, err error) {
	root, err := os.OpenRoot(v.Base)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("opening the directory of local volumes: %w", err)
	}
	defer root.Close()
	dir, err := openDir(root, v.Folder)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("opening %s: %w", v.Path(), err)
	}
	defer dir.Close()
	if v.mayDelete(dir) != nil || root.Remove(v.Folder) != nil {
		return false, nil
	}
	removeParents(root, v.Folder)
	if err := release(dir); err != nil {
		return true, fmt.Errorf("giving back the quota of %s: %w", v.Path(), err)
	}
	return true, nil
}

// removeParents removes the directories that led to a folder and to nothing else.
func removeParents(root *os.Root, folder string) {
	for parent := filepath.Dir(folder); parent != "."; parent = filepath.Dir(parent) {
		if root.Remove(parent) != nil {
			return // others are in it
		}
	}
}

// isAside makes sure that what was put aside is what was looked at: somebody may have changed names in between, if the
// folder is in one that pods write to. If it is not, it is put back.
func (v Volume) isAside(root *os.Root, dir *os.File) error {
	waste := deleted + v.PV
	was, err := dir.Stat()
	if err == nil {
		var is fs.FileInfo
		is, err = root.Lstat(waste)
		if errors.Is(err, fs.ErrNotExist) || err == nil && os.SameFile(was, is) { // FinishDeletes may have been faster
			return nil
		}
	}
	return errors.Join(fmt.Errorf("%s was replaced while it was to be removed: it is not removed", v.Path()), err, root.Rename(waste, v.Folder))
}

// mayDelete says why not.
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

// FinishDelete removes what Delete had put aside when it was interrupted. It takes as long as there is much in it.
func (v Volume) FinishDelete() error {
	return inBase(v.Base, func(root *os.Root) error { return removeAside(root, deleted+v.PV) })
}

// FinishDeletes does so for all volumes of a directory, until ctx is done.
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

// inBase does something in a directory of volumes, if it is there.
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

// putAside matches the names that folders without a mark have while they are removed.
var putAside = regexp.MustCompile("^" + regexp.QuoteMeta(deleted) + pvName + "$")

// removeAside removes what Delete has put aside. Somebody else's file may have a name that is like it.
func removeAside(root *os.Root, name string) error {
	pv, aside := strings.CutPrefix(name, deleted)
	if !aside {
		return nil
	}
	if !putAside.MatchString(name) {
		dir, err := openDir(root, name)
		if err != nil {
			return nil //nolint:nilerr // none of ours
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
