// Package backup is the file that a server's cluster can be made of again: etcd's data, the cluster's keys, and what the
// server knows of the cluster, in one archive whose content is checked. It holds all secrets of the cluster. How etcd's
// data is taken and put back is the business of others.
package backup

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// Suffix is how the names of backups end: a tar archive under zstd.
const Suffix = ".tar.zst"

// Manifest is the first file of a backup: what is in it.
type Manifest struct {
	Version  string    `json:"version"` // coracle's
	Created  time.Time `json:"created"`
	Node     string    `json:"node"`
	Revision int64     `json:"revision"` // etcd's, up to which it has everything
	// Members are the servers that kept the data.
	Members []string `json:"members"`
	// Files are all others in the archive, in its order.
	Files []File `json:"files"`
}

// File is a file in a backup.
type File struct {
	// Name is that in the archive: "etcd.db", "server/…" for what is below the data directory, "machine/…" for what is not.
	Name   string      `json:"name"`
	Mode   fs.FileMode `json:"mode"`
	Size   int64       `json:"size"`
	SHA256 string      `json:"sha256"`

	source string
}

// Names in an archive.
const (
	manifestName = "manifest.json"
	Database     = "etcd.db" // etcd's own snapshot
	serverDir    = "server/"
	machineDir   = "machine/"
)

// Gather lists what of a server belongs into a backup besides the manifest: the database, which lies at db for now, the
// keys, what the server remembers, and the machine's files that settings name.
func Gather(d paths.Dirs, db string, settings []string) ([]File, error) {
	list := []File{{Name: Database, Mode: 0o600, source: db}}
	for _, path := range []string{d.PKI(), d.ServerCluster(), d.OwnNodes(), d.Token(), d.AgentToken(), filepath.Dir(d.SharedFile("any"))} {
		err := filepath.WalkDir(path, func(path string, entry fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil || !entry.Type().IsRegular() || strings.HasPrefix(entry.Name(), ".") {
				return err
			}
			within, err := filepath.Rel(filepath.Join(d.Data, "server"), path)
			if err != nil {
				return err
			}
			list = append(list, File{Name: serverDir + within, source: path})
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("looking for what belongs into the backup: %w", err)
		}
	}
	for _, path := range settings {
		if _, err := os.Stat(path); err == nil && !slices.ContainsFunc(list, func(f File) bool { return f.source == path }) {
			list = append(list, File{Name: machineDir + strings.TrimPrefix(path, "/"), source: path})
		}
	}
	return list, nil
}

// Read returns the manifest of a backup without looking at the rest.
func Read(path string) (Manifest, error) {
	a, err := open(path)
	if err != nil {
		return Manifest{}, err
	}
	defer a.close()
	return a.manifest()
}

// Verify reads a backup and says what is wrong with it.
func Verify(path string) (Manifest, error) { return walk(path, nil) }

// Extract writes the content of a backup to a directory, which must not exist: Database, and below server what belongs to the
// data directory's server. What is the machine's is written to its place below root, where nothing is there yet. If
// anything is wrong with the backup nothing is left.
func Extract(path, dir, root string) (m Manifest, restored []string, err error) {
	if m, err = Verify(path); err != nil {
		return m, nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return m, nil, err
	}
	_, err = walk(path, func(f File) (string, error) {
		if place, ok := strings.CutPrefix(f.Name, machineDir); ok {
			place = filepath.Join(root, place)
			if _, err := os.Lstat(place); err == nil {
				return "", nil
			}
			restored = append(restored, place)
			return place, nil
		}
		return filepath.Join(dir, f.Name), nil
	})
	if err != nil {
		return m, nil, errors.Join(err, os.RemoveAll(dir))
	}
	return m, restored, nil
}

func (m Manifest) encode() ([]byte, error) { return json.MarshalIndent(m, "", "  ") }
