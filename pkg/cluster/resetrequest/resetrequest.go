// Package resetrequest stores the request to reduce etcd to the member of this server. It is a file, so that an interrupted reset
// continues.
package resetrequest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// Request asks a member to become the only one at its next start, with its present data. The other members are then removed, and
// learn that at their next request. It is kept in paths.Dirs.ResetRequest.
type Request struct {
	// Snapshot is a directory that does not exist: the member's data is copied there first.
	Snapshot string `json:"snapshot"`
}

// Write writes the request to a file.
func (r Request) Write(file string) error { return atomicfile.WriteJSON(file, r, 0o600) }

// Read reads the request in a file. found is false if there is none.
func Read(file string) (r Request, found bool, err error) {
	if found, err = atomicfile.ReadJSON(file, &r); err != nil {
		err = fmt.Errorf("reading the request to reset the quorum: %w; if the file is damaged, remove it and repeat the command", err)
	}
	return r, found, err
}

// CopyData copies the data of a stopped member to where the request in d asks for it, if there is a request. It does nothing if the
// copy exists, or if there is no data.
func CopyData(d paths.Dirs) error {
	request, found, err := Read(d.ResetRequest())
	if err != nil || !found || paths.Exists(request.Snapshot) || !paths.Exists(filepath.Join(d.Etcd(), "member")) {
		return err
	}
	if err := copyTree(d.Etcd(), request.Snapshot); err != nil {
		return fmt.Errorf("copying etcd's data before the quorum is reset: %w", err)
	}
	return nil
}

func copyTree(from, to string) error {
	err := filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type() == fs.ModeSymlink {
			err = fmt.Errorf("%s is a symbolic link, of which a copy would be no backup: mount the disk there instead", path)
		}
		return err
	})
	if err != nil {
		return err
	}
	partial := to + ".partial"
	if err := os.RemoveAll(partial); err != nil {
		return err
	}
	if err := atomicfile.CopyTree(from, partial, nil); err != nil {
		return errors.Join(err, os.RemoveAll(partial)) // it may be what fills the disk
	}
	return os.Rename(partial, to)
}
