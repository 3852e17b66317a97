package controlplaneuser

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"unicode/utf8"

	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// ToRoot gives the directories of the control plane's user to root and removes its copies, for a version that knows no such user and
// would follow links there. The control plane must not run. It does all that it can, whatever fails.
func ToRoot(d paths.Dirs) error {
	errs := []error{os.RemoveAll(d.CopiesFor())}
	for _, file := range []string{d.ControlPlane("x"), d.ControlPlaneRun("x"), filepath.Join(d.Etcd(), "x"), d.AuditLog(), d.State("x")} {
		dir := filepath.Dir(file)
		if !paths.Exists(dir) {
			continue
		}
		if err := give(dir, 0); err != nil {
			errs = append(errs, fmt.Errorf("giving %s to root: %w", dir, err))
		}
	}
	return errors.Join(errs...)
}

// give changes the owner of a directory and of all that is in it, as far as it can. The control plane does not run. Links are not followed, and
// others' links, or their files that have another name elsewhere, are left alone.
func give(dir string, id int) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	var errs []error
	err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !utf8.ValidString(name) { // WalkDir refuses such a name, and coracle makes none
			errs = append(errs, root.RemoveAll(name))
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if err == nil {
			err = giveOne(root, name, id)
		}
		errs = append(errs, err)
		return nil
	})
	return errors.Join(append(errs, err)...)
}

// giveOne changes the owner of a directory or a file. What becomes root's is closed to others. Root gets no links, because it would write
// where the user chose, and no sockets, pipes and devices, which are made anew: they are removed.
func giveOne(root *os.Root, name string, id int) error {
	info, err := root.Lstat(name)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(stat.Uid) == id && int(stat.Gid) == id {
		return nil
	}
	regular := info.Mode().IsRegular()
	linked := info.Mode().Type() == fs.ModeSymlink || regular && stat.Nlink > 1
	switch {
	case stat.Uid != ID && linked:
		return nil
	case stat.Uid == 0 || id != 0:
		return root.Lchown(name, id, id)
	case linked || !regular && !info.IsDir():
		return root.Remove(name)
	}
	return errors.Join(root.Lchown(name, 0, 0), root.Chmod(name, info.Mode().Perm()&^0o077))
}
