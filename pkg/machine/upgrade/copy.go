package upgrade

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
)

// linkOrCopy makes to another name of the file from, or a copy of it where that cannot be. What was at to is replaced.
func linkOrCopy(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	if err := os.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if os.Link(from, to) == nil {
		return atomicfile.SyncDir(filepath.Dir(to))
	}
	return atomicfile.Copy(from, to, 0o755)
}

// prepared reports whether a file is one that etcd has prepared and does not use yet.
func prepared(path string) bool { return strings.HasSuffix(path, ".tmp") }

// treeSize is how much of a disk a copy needs, in bytes. What is not there needs nothing.
func treeSize(path string) (size int64) {
	_ = filepath.WalkDir(path, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || prepared(path) {
			return nil
		}
		if info, err := entry.Info(); err == nil {
			size += (info.Size() + 4095) &^ 4095
		}
		return nil
	})
	return size
}

// room says so if less than need bytes can be written in dir.
func room(dir string, need int64, what string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return nil // then writing will tell
	}
	const mb = 1_000_000
	if free := int64(st.Bavail) * st.Bsize; free < need {
		return fmt.Errorf("%s needs %d MB in %s, where %d MB are free", what, need/mb+1, dir, free/mb)
	}
	return nil
}

// move renames, or copies where a rename cannot do it because the file systems differ. from is gone when it returns, and
// to is there as a whole or not at all.
func move(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	err := os.Rename(from, to)
	if errors.Is(err, unix.EXDEV) {
		part := to + ".moving"
		moved := from + ".moved" // what is left of from must not be taken for the whole by who goes on after a power loss
		if err := errors.Join(os.RemoveAll(part), os.RemoveAll(moved)); err != nil {
			return err
		}
		if err := atomicfile.CopyTree(from, part, prepared); err != nil {
			return errors.Join(err, os.RemoveAll(part))
		}
		if err := os.Rename(part, to); err != nil {
			return err
		}
		if err := atomicfile.SyncDir(filepath.Dir(to)); err != nil {
			return err
		}
		if err := os.Rename(from, moved); err != nil {
			return err
		}
		if err := atomicfile.SyncDir(filepath.Dir(from)); err != nil {
			return err
		}
		err = os.RemoveAll(moved)
	}
	if err != nil {
		return err
	}
	if err := atomicfile.SyncDir(filepath.Dir(to)); err != nil {
		return err
	}
	return atomicfile.SyncDir(filepath.Dir(from))
}
