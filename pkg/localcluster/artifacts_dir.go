package localcluster

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// Artifacts is a directory for a cluster's logs and state. Its files belong to the user who reads them.
type Artifacts struct {
	Dir      string
	UID, GID int
}

// mkdir makes a directory, and those above it.
func (a Artifacts) mkdir(dir string) error {
	if paths.Exists(dir) {
		return nil
	}
	if err := a.mkdir(filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		if errors.Is(err, fs.ErrExist) { // another goroutine made it meanwhile
			return nil
		}
		return err
	}
	return os.Lchown(dir, a.UID, a.GID)
}

// write writes a file and makes its directories. Other users can write to the directory too, so symbolic links in it are not followed out
// of it.
func (a Artifacts) write(name string, data []byte) error {
	if err := a.mkdir(a.Dir); err != nil {
		return err
	}
	root, err := os.OpenRoot(a.Dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := a.within(root, filepath.Dir(name)); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Chown(a.UID, a.GID), f.Close())
}

// within makes a directory below the root.
func (a Artifacts) within(root *os.Root, dir string) error {
	if dir == "." {
		return nil
	}
	if err := a.within(root, filepath.Dir(dir)); err != nil {
		return err
	}
	err := root.Mkdir(dir, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return errors.Join(err, root.Lchown(dir, a.UID, a.GID))
}

// copy copies a file if it exists.
func (a Artifacts) copy(from, name string) error {
	data, err := os.ReadFile(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, a.write(name, data))
}
