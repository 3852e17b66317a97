// Package backup writes and restores backups: archives of etcd's data, the cluster's keys and the server's settings, from which
// a cluster can be restored. A backup has all secrets of the cluster. Callers take and restore the snapshot of etcd.
package backup

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// The ends of backups' names: tar archives compressed with zstd, and those that are encrypted with age besides.
const (
	plainSuffix  = ".tar.zst"
	sealedSuffix = ".tar.zst.age"
)

// Manifest is the first file of a backup. It lists the others.
type Manifest struct {
	Version  string    `json:"version"` // coracle's
	Created  time.Time `json:"created"`
	Node     string    `json:"node"`
	Revision int64     `json:"revision"` // etcd's revision of the snapshot
	// Members are the names of etcd's members.
	Members []string `json:"members"`
	// Files are the other files of the archive, in its order.
	Files []File `json:"files"`
}

// File is a file in a backup.
type File struct {
	// Name is the name in the archive: "etcd.db", "server/…" for files of the data directory, "machine/…" for other files.
	Name   string      `json:"name"`
	Mode   fs.FileMode `json:"mode"`
	Size   int64       `json:"size"`
	SHA256 string      `json:"sha256"`

	// open reads what the file holds.
	open func() (io.ReadCloser, error)
	mode fs.FileMode // what Mode shall be; 0 is that of the file that open opens
}

// Names in an archive.
const (
	manifestName = "manifest.json"
	Database     = "etcd.db" // etcd's data: its entries, as package export writes them; a backup of an earlier version has the file of a snapshot
	serverDir    = "server/"
	machineDir   = "machine/"
)

// Gather lists the files of a server that belong in a backup: etcd's data, which write writes, the keys, the server's state, and
// files of the machine whose paths are in settings.
func Gather(d paths.Dirs, write func(io.Writer) error, settings []string) ([]File, error) {
	list, found := []File{{Name: Database, mode: 0o600, open: written(write)}}, map[string]bool{}
	for _, path := range []string{d.PKI(), d.ServerCluster(), d.OwnNodes(), d.Token(), d.AgentToken(), filepath.Dir(d.SharedFile("any"))} {
		err := filepath.WalkDir(path, func(path string, entry fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if entry != nil && entry.IsDir() && path == d.OwnNodes() { // the control plane's user made it, and may change it meanwhile
				return fs.SkipDir
			}
			if err != nil || !entry.Type().IsRegular() || strings.HasPrefix(entry.Name(), ".") {
				return err
			}
			within, err := filepath.Rel(filepath.Join(d.Data, "server"), path)
			if err != nil {
				return err
			}
			list, found[path] = append(list, fileAt(serverDir+within, path)), true
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("listing the files of the backup: %w", err)
		}
	}
	for _, path := range settings {
		if _, err := os.Stat(path); err == nil && !found[path] {
			list, found[path] = append(list, fileAt(machineDir+strings.TrimPrefix(path, "/"), path)), true
		}
	}
	return list, nil
}

func fileAt(name, path string) File {
	return File{Name: name, open: func() (io.ReadCloser, error) { return atomicfile.Open(path) }}
}

// written reads what a function writes.
func written(write func(io.Writer) error) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) {
		r, w := io.Pipe()
		go func() { w.CloseWithError(write(w)) }()
		return r, nil
	}
}

// Read returns the manifest of a backup that keys open. It does not check the other files.
func Read(path string, keys Keys) (Manifest, error) {
	a, err := open(path, keys)
	if err != nil {
		return Manifest{}, err
	}
	defer a.close()
	return a.manifest()
}

// Verify reads a backup and compares all files with the manifest.
func Verify(path string, keys Keys) (Manifest, error) { return walk(path, keys, nil, nil) }

// Extract writes the content of a backup to a directory, which must not exist: Database, and below "server" the files of the
// data directory. Files of the machine are written to their places below root, unless they exist there. If the backup is
// damaged, nothing is left.
func Extract(path string, keys Keys, dir, root string) (m Manifest, restored []string, err error) {
	if m, err = Verify(path, keys); err != nil {
		return m, nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return m, nil, err
	}
	_, err = walk(path, keys, func(f File) (string, error) {
		if place, ok := strings.CutPrefix(f.Name, machineDir); ok {
			place = filepath.Join(root, place)
			if _, err := os.Lstat(place); err == nil {
				return "", nil
			}
			restored = append(restored, place)
			return place, nil
		}
		return filepath.Join(dir, f.Name), nil
	}, nil)
	if err != nil {
		return m, nil, errors.Join(err, os.RemoveAll(dir))
	}
	return m, restored, nil
}

func (m Manifest) encode() ([]byte, error) { return json.MarshalIndent(m, "", "  ") }
