package atomicfile

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Open opens a file for reading. In a directory that others than root can write it follows no link, neither a symbolic one nor another name
// of root's file, and it waits for no pipe: root must not read for them what they may not read.
func Open(path string) (*os.File, error) {
	flags := os.O_RDONLY | unix.O_NONBLOCK
	var dir, file unix.Stat_t
	if unix.Stat(filepath.Dir(path), &dir) != nil || dir.Uid == 0 && dir.Mode&0o022 == 0 {
		return os.OpenFile(path, flags, 0)
	}
	f, err := os.OpenFile(path, flags|unix.O_NOFOLLOW, 0)
	if err == nil && unix.Fstat(int(f.Fd()), &file) == nil && file.Uid == 0 && file.Nlink > 1 {
		f.Close()
		return nil, &fs.PathError{Op: "open", Path: path, Err: errors.New("it is a file of root's with several names")}
	}
	return f, err
}

// Copy makes path, whose directory must exist, a copy of the file from. The copy is on disk when Copy returns.
func Copy(from, path string, mode fs.FileMode) error {
	return WriteWith(path, mode, func(out *os.File) error {
		in, err := Open(from)
		if err != nil {
			return err
		}
		defer in.Close()
		return copyData(out, in)
	})
}

// copyData shares the data where the file system can do that. Otherwise it copies and leaves holes for zeros, because etcd's
// log has 64 MB of which most are zeros.
func copyData(out, in *os.File) error {
	if unix.IoctlFileClone(int(out.Fd()), int(in.Fd())) == nil {
		return nil
	}
	const size = 64 << 10
	block, zeros := make([]byte, size), make([]byte, size)
	var at int64
	for {
		n, err := io.ReadFull(in, block)
		if n > 0 && !bytes.Equal(block[:n], zeros[:n]) {
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

// CopyTree copies a file, or a directory with its files, directories and own symbolic links, but no paths that skip selects; nil
// selects none. Links of other users are left out: the copies would be this user's. Everything is on disk when it returns. A failed copy
// is incomplete.
func CopyTree(from, to string, skip func(path string) bool) error {
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
			return SyncDir(filepath.Dir(target))
		case entry.Type() == fs.ModeSymlink:
			if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) != os.Geteuid() {
				return nil
			}
			link, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(link, target)
		case !info.Mode().IsRegular() || skip != nil && skip(path):
			return nil
		}
		return Copy(path, target, info.Mode().Perm())
	})
}
