package localcluster

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// clone copies a tree of files. Immutable files are hard-linked if both trees are on one file system.
type clone struct {
	from, to string
	// fixed reports whether a file is immutable, skip whether it is left out, by its path relative to from. Nil means that no file is.
	fixed, skip func(path string) bool
	// marks are overlayfs' whiteouts and opaque directories. They cannot be stored on a file system that is an overlayfs itself, so they
	// are collected while a tree is copied, or created in the copy if put is set.
	marks marks
	put   bool
	// bytes is the number of bytes that were copied.
	bytes int64

	// seen has the copies of files with several links, by the inode of the original. Trees that share files share the map.
	seen map[uint64]string
}

// marks are paths of whiteouts and of opaque directories, relative to the tree's root.
type marks struct {
	Gone   []string `json:"gone,omitempty"`
	Opaque []string `json:"opaque,omitempty"`
}

// opaque is overlayfs' extended attribute of a directory that hides the lower layers.
const opaque = "trusted.overlay.opaque"

// run copies the subtree at a path.
func (c *clone) run(path string) error {
	root := filepath.Join(c.from, path)
	err := filepath.WalkDir(root, func(at string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(c.from, at)
		if err != nil {
			return err
		}
		if c.skip != nil && c.skip(below) {
			return nil
		}
		if err := c.one(below); err != nil {
			return fmt.Errorf("copying %s: %w", at, err)
		}
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) && !paths.Exists(root) {
		return nil
	}
	return err
}

// all copies the whole tree, with its marks.
func (c *clone) all() error {
	if err := os.MkdirAll(filepath.Dir(c.to), 0o755); err != nil {
		return err
	}
	if err := c.run("."); err != nil {
		return err
	}
	return c.finish()
}

// finish creates the marks in the copy.
func (c *clone) finish() error {
	if !c.put {
		return nil
	}
	for _, path := range c.marks.Gone {
		if err := unix.Mknod(filepath.Join(c.to, path), unix.S_IFCHR, 0); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("making a whiteout for %s: %w", path, err)
		}
	}
	for _, path := range c.marks.Opaque {
		if err := unix.Lsetxattr(filepath.Join(c.to, path), opaque, []byte("y"), 0); err != nil {
			return fmt.Errorf("marking %s as opaque: %w", path, err)
		}
	}
	return nil
}

// one copies a single file or directory.
func (c *clone) one(path string) error {
	from, to := filepath.Join(c.from, path), filepath.Join(c.to, path)
	var st unix.Stat_t
	if err := unix.Lstat(from, &st); err != nil {
		return err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		if err := os.MkdirAll(to, 0o700); err != nil {
			return err
		}
	case unix.S_IFLNK:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		if err := os.Symlink(target, to); err != nil {
			return err
		}
	case unix.S_IFREG:
		done, err := c.link(path, &st)
		if done || err != nil {
			return err
		}
		if err := c.content(from, to); err != nil {
			return err
		}
	case unix.S_IFCHR:
		if st.Rdev == 0 {
			c.marks.Gone = append(c.marks.Gone, path)
			return nil
		}
		fallthrough
	case unix.S_IFBLK, unix.S_IFIFO:
		if err := unix.Mknod(to, st.Mode, int(st.Rdev)); err != nil {
			return err
		}
	default:
		return nil // sockets are left out: they are useless without their listeners
	}
	return c.attributes(path, &st)
}

// link makes the copy a hard link: to the original if it is immutable, to an earlier copy if the original has several links.
func (c *clone) link(path string, st *unix.Stat_t) (done bool, err error) {
	to := filepath.Join(c.to, path)
	if c.fixed != nil && c.fixed(path) {
		err := os.Link(filepath.Join(c.from, path), to)
		if err == nil || !errors.Is(err, syscall.EXDEV) && !errors.Is(err, syscall.EMLINK) && !errors.Is(err, syscall.EPERM) {
			return err == nil, err
		}
	}
	if st.Nlink < 2 {
		return false, nil
	}
	if c.seen == nil {
		c.seen = map[uint64]string{}
	}
	if earlier, ok := c.seen[st.Ino]; ok && os.Link(earlier, to) == nil {
		return true, nil
	}
	c.seen[st.Ino] = to
	return false, nil
}

// block is the size in bytes of the blocks that are skipped if they are zero.
const block = 64 << 10

// content copies a file's content and leaves holes for zeros, of which etcd's log mostly consists.
func (c *clone) content(from, to string) error {
	in, err := atomicfile.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	if unix.IoctlFileClone(int(out.Fd()), int(in.Fd())) == nil {
		return nil
	}
	buf, zeros := make([]byte, block), make([]byte, block)
	for at := int64(0); ; {
		n, err := io.ReadFull(in, buf)
		if n > 0 && string(buf[:n]) != string(zeros[:n]) {
			if _, err := out.WriteAt(buf[:n], at); err != nil {
				return err
			}
			c.bytes += int64(n)
		}
		at += int64(n)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return out.Truncate(at)
		}
		if err != nil {
			return err
		}
	}
}

// attributes gives the copy its owner, mode, extended attributes and times.
func (c *clone) attributes(path string, st *unix.Stat_t) error {
	from, to := filepath.Join(c.from, path), filepath.Join(c.to, path)
	if err := os.Lchown(to, int(st.Uid), int(st.Gid)); err != nil {
		return err
	}
	if err := c.extended(path, from, to); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		if err := unix.Chmod(to, st.Mode&0o7777); err != nil {
			return err
		}
	}
	return unix.UtimesNanoAt(unix.AT_FDCWD, to, []unix.Timespec{st.Atim, st.Mtim}, unix.AT_SYMLINK_NOFOLLOW)
}

func (c *clone) extended(path, from, to string) error {
	names := make([]byte, 4096)
	n, err := unix.Llistxattr(from, names)
	if err != nil || n == 0 {
		return nil // none, or the file system does not support them
	}
	for _, name := range strings.Split(strings.TrimRight(string(names[:n]), "\x00"), "\x00") {
		value := make([]byte, 64<<10)
		n, err := unix.Lgetxattr(from, name, value)
		switch {
		case err != nil:
			continue
		case name == opaque:
			c.marks.Opaque = append(c.marks.Opaque, path)
			continue
		case strings.HasPrefix(name, "trusted.overlay."):
			continue // it describes the original's directory
		}
		if err := unix.Lsetxattr(to, name, value[:n], 0); err != nil && !errors.Is(err, unix.ENOTSUP) && !errors.Is(err, unix.EPERM) {
			return fmt.Errorf("setting %s: %w", name, err)
		}
	}
	return nil
}
