package upgrade

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
)

// linkOrCopy makes to a hard link to the file from, or a copy where a link is not possible. It replaces to.
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

// treeSize returns the disk space of a copy, in bytes; 0 if the path does not exist.
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

// move renames a file or directory, or copies it to another file system. Afterwards from does not exist. to appears only when
// it is complete.
func move(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	err := os.Rename(from, to)
	if errors.Is(err, unix.EXDEV) {
		part := to + ".moving"
		moved := from + ".moved" // so that a partly removed from is not used after a power loss
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

// removeUnfinished removes copies to path that were interrupted.
func removeUnfinished(path string) {
	for _, file := range atomicfile.Unfinished(path) {
		_ = os.Remove(file)
	}
}
