package localpath

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Mark is the extended attribute of a volume's directory that holds the name of its PersistentVolume. Only root outside of
// all containers can set it, so it proves that the directory is the volume's.
const Mark = "trusted.coracle.volume"

// Volume is the directory of a local volume.
type Volume struct {
	Base   string // the configured directory
	Folder string // path below it
	PV     string // the name of the PersistentVolume
}

// Path returns the path of the volume.
func (v Volume) Path() string { return filepath.Join(v.Base, v.Folder) }

// Exists reports whether the directory exists and is this volume's.
func (v Volume) Exists() (exists bool) {
	_ = v.withDir(func(_ *os.Root, dir *os.File) error {
		owner, marked := markOf(dir)
		exists = marked && owner == v.PV || !marked && v.namedAfterPV()
		return nil
	})
	return exists
}

// Create creates the directory unless it exists, calls limit with it, and then makes it writable for all users. limit receives
// whether the directory is empty. A directory with files in it is used as it is, because a pathPattern can give a claim the
// data of an earlier claim of the same name. Create can be called again after a crash at any line.
func (v Volume) Create(limit func(dir *os.File, empty bool) error) error {
	if err := os.MkdirAll(v.Base, 0o700); err != nil {
		return fmt.Errorf("making the directory of local volumes: %w", err)
	}
	root, err := os.OpenRoot(v.Base)
	if err != nil {
		return fmt.Errorf("opening the directory of local volumes: %w", err)
	}
	defer root.Close()
	parent := filepath.Dir(v.Folder)
	if err := outsideOfVolumes(root, parent); err != nil {
		return fmt.Errorf("making %s: %w", v.Path(), err)
	}
	if err := root.MkdirAll(parent, 0o755); err != nil {
		return fmt.Errorf("making %s: %w", filepath.Join(v.Base, parent), err)
	}
	if err := root.Mkdir(v.Folder, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making %s: %w", v.Path(), err)
	}
	dir, err := openDir(root, v.Folder)
	if err != nil {
		return fmt.Errorf("opening %s: %w", v.Path(), err)
	}
	defer dir.Close()
	if err := v.finish(dir, limit); err != nil {
		return err
	}
	return syncDirs(root, v.Folder)
}

// outsideOfVolumes returns an error if a directory is that of a volume or below it, because the pods of that volume could
// access what is in it, and its size would count towards their quota.
func outsideOfVolumes(root *os.Root, name string) error {
	for ; name != "."; name = filepath.Dir(name) {
		dir, err := openDir(root, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		owner, marked := markOf(dir)
		dir.Close()
		if marked {
			return fmt.Errorf("%s is the folder of volume %s, and no volume can be in another: change the pathPattern", name, owner)
		}
	}
	return nil
}

// finish sets quota, mark and mode of the directory.
func (v Volume) finish(dir *os.File, limit func(*os.File, bool) error) error {
	info, err := dir.Stat()
	if err != nil {
		return fmt.Errorf("looking at %s: %w", v.Path(), err)
	}
	names, err := dir.Readdirnames(1)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("looking into %s: %w", v.Path(), err)
	}
	owner, marked := markOf(dir)
	empty := len(names) == 0
	if limit != nil {
		if err := limit(dir, empty); err != nil {
			return fmt.Errorf("limiting the size of %s: %w", v.Path(), err)
		}
	}
	if !marked && !empty {
		return nil // a user made it, so that Delete has to refuse it
	}
	if owner != v.PV {
		err := unix.Fsetxattr(int(dir.Fd()), Mark, []byte(v.PV), 0)
		if err != nil && !noAttributes(err) {
			return fmt.Errorf("marking %s as the folder of volume %s: %w", v.Path(), v.PV, err)
		}
	}
	if empty && info.Mode().Perm() == 0o700 {
		if err := dir.Chmod(0o777); err != nil {
			return fmt.Errorf("letting pods write to %s: %w", v.Path(), err)
		}
	}
	return nil
}

// HandOver marks the directory, if it exists, as that of another volume that uses it too.
func (v Volume) HandOver(pv string) error {
	return v.withDir(func(_ *os.Root, dir *os.File) error {
		if owner, marked := markOf(dir); !marked || owner != v.PV {
			return nil
		}
		if err := unix.Fsetxattr(int(dir.Fd()), Mark, []byte(pv), 0); err != nil {
			return fmt.Errorf("marking %s as the folder of volume %s: %w", v.Path(), pv, err)
		}
		return nil
	})
}

// noAttributes reports whether an error means that directories cannot be marked here, because of the file system or because
// coracle runs in a container.
func noAttributes(err error) bool {
	return errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENODATA)
}

// namedAfterPV reports whether the directory's name identifies its volume, for file systems without extended attributes. It
// accepts only generated names of PersistentVolumes.
func (v Volume) namedAfterPV() bool {
	m := named.FindStringSubmatch(v.Folder)
	return m != nil && m[1] == v.PV && !strings.Contains(v.Folder, "/")
}

// markOf returns the PersistentVolume in the mark of a directory, if it is marked.
func markOf(dir *os.File) (pv string, marked bool) {
	var buf [256]byte
	n, err := unix.Fgetxattr(int(dir.Fd()), Mark, buf[:])
	if err != nil || n == 0 {
		return "", false
	}
	return string(buf[:n]), true
}

// openDir opens a directory below root, but not through a symbolic link. os.Root refuses links that lead out of root; a link
// that stays inside could lead to another volume, if a pod made it in a volume that contains other directories.
func openDir(root *os.Root, name string) (*os.File, error) {
	dir, err := root.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	if err := noLinks(root, name); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return dir, nil
}

func noLinks(root *os.Root, name string) error {
	for ; name != "."; name = filepath.Dir(name) {
		info, err := root.Lstat(name)
		if err != nil {
			return err
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			return fmt.Errorf("%s is a symbolic link", name)
		}
	}
	return nil
}

// syncDirs syncs the directory and its parents to the disk.
func syncDirs(root *os.Root, folder string) error {
	for {
		dir, err := root.Open(folder)
		if err != nil {
			return fmt.Errorf("syncing %s: %w", folder, err)
		}
		err = dir.Sync()
		dir.Close()
		if err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("syncing %s: %w", folder, err)
		}
		if folder == "." {
			return nil
		}
		folder = filepath.Dir(folder)
	}
}
