package upgrade

import (
	"bytes"
	"errors"
	"fmt"
	"io"
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
	return copyFile(from, to, 0o755)
}

// copyFile writes a copy that is on the disk when it returns, under its name only when it is whole.
func copyFile(from, to string, mode fs.FileMode) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	part := to + ".part"
	out, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	err = out.Chmod(mode)
	if err == nil {
		err = copyData(out, in)
	}
	if err = errors.Join(err, out.Sync(), out.Close()); err == nil {
		err = os.Rename(part, to)
	}
	if err != nil {
		return errors.Join(err, os.Remove(part)) // it may be what fills the disk
	}
	return atomicfile.SyncDir(filepath.Dir(to))
}

// copyData copies a file: without copying where the file system can share the data, else leaving holes where there is
// nothing, because etcd's log is 64 MB of which most is empty.
func copyData(out, in *os.File) error {
	if unix.IoctlFileClone(int(out.Fd()), int(in.Fd())) == nil {
		return nil
	}
	const size = 64 << 10
	block, empty := make([]byte, size), make([]byte, size)
	var at int64
	for {
		n, err := io.ReadFull(in, block)
		if n > 0 && !bytes.Equal(block[:n], empty[:n]) {
			if _, err := out.WriteAt(block[:n], at); err != nil {
				return err
			}
		}
		at += int64(n)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return out.Truncate(at)
		case err != nil:
			return err
		}
	}
}

// unfinished is what etcd calls the files that it has prepared and does not use yet.
const unfinished = ".tmp"

// copyTree copies a file or directory. Everything is on the disk when it returns.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		within, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		target := filepath.Join(to, within)
		switch {
		case entry.IsDir():
			if err := os.MkdirAll(target, info.Mode().Perm()); err != nil {
				return err
			}
			return atomicfile.SyncDir(filepath.Dir(target))
		case entry.Type() == fs.ModeSymlink:
			link, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(link, target)
		case !info.Mode().IsRegular() || strings.HasSuffix(path, unfinished):
			return nil
		}
		return copyFile(path, target, info.Mode().Perm())
	})
}

// treeSize is how much of a disk a copy needs, in bytes. What is not there needs nothing.
func treeSize(path string) (size int64) {
	_ = filepath.WalkDir(path, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasSuffix(path, unfinished) {
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
		if err := copyTree(from, part); err != nil {
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
