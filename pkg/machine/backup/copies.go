package backup

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/throttle"
)

// Summary is what is known of a backup without its keys.
type Summary struct {
	Name     string    `json:"name"`
	Created  time.Time `json:"created"`
	Version  string    `json:"version"` // coracle's
	Node     string    `json:"node"`
	Cluster  string    `json:"cluster"` // the hash of its CA's public key
	Revision int64     `json:"revision"`
	Objects  int64     `json:"objects"` // in etcd
	Size     int64     `json:"size"`    // of the file, in bytes
	// For says who can open it.
	For Readers `json:"for"`
	// Tried is when an etcd was made of it that had everything; zero if it was not, and then Error says why.
	Tried time.Time `json:"tried,omitzero"`
	Error string    `json:"error,omitempty"`
}

// Copy is a backup in a directory, with what is known of it.
type Copy struct {
	Summary
	// Bucket is where it is besides, "" for nowhere, and Sent what that cost in bytes; BucketError is why it is not there, though it should be.
	Bucket      string `json:"bucket,omitempty"`
	Sent        int64  `json:"sent,omitempty"`
	BucketError string `json:"bucketError,omitempty"`

	File string `json:"-"`
}

// noteSuffix is the end of the names of the files that hold Copies, beside the backups.
const noteSuffix = ".about.json"

// Note writes what is known of a copy beside it.
func (c Copy) Note() error { return writeNote(c.File+noteSuffix, c) }

// Compare orders backups of a cluster. Revisions grow, also with a restore, while clocks are set.
func (s Summary) Compare(other Summary) int {
	return cmp.Or(cmp.Compare(s.Revision, other.Revision), s.Created.Compare(other.Created))
}

// Copies lists the backups in a directory, in their order. Of one without a note, as of an earlier version or copied from elsewhere,
// only the name, time and size are known.
func Copies(dir string) ([]Copy, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var all []Copy
	for _, e := range entries {
		info, errInfo := e.Info()
		if nameOf(e.Name()) == e.Name() || errInfo != nil || !info.Mode().IsRegular() {
			continue
		}
		all = append(all, copyAt(filepath.Join(dir, e.Name()), info))
	}
	slices.SortFunc(all, func(x, y Copy) int { return x.Compare(y.Summary) })
	return all, err
}

// CopyAt describes the backup in a file.
func CopyAt(file string) (c Copy, err error) {
	info, err := os.Stat(file)
	if err != nil {
		return c, err
	}
	return copyAt(file, info), nil
}

func copyAt(file string, info fs.FileInfo) Copy {
	c := Copy{Summary: Summary{Created: info.ModTime()}}
	if text, err := os.ReadFile(file + noteSuffix); err == nil {
		_ = json.Unmarshal(text, &c) // one that is damaged is as none
	}
	c.File, c.Name, c.Size = file, nameOf(filepath.Base(file)), info.Size()
	return c
}

func nameOf(file string) string {
	return strings.TrimSuffix(strings.TrimSuffix(file, sealedSuffix), plainSuffix)
}

// Remove removes a copy with its note.
func (c Copy) Remove() error {
	if err := os.Remove(c.File); err != nil {
		return err
	}
	if err := os.Remove(c.File + noteSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Content returns the archive in a backup, not compressed.
func Content(path string, keys Keys) (io.ReadCloser, error) {
	a, err := open(path, keys)
	if err != nil {
		return nil, err
	}
	return opened{a}, nil
}

type opened struct{ *archive }

func (c opened) Read(b []byte) (int, error) {
	n, err := c.zstd.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		err = c.damaged(err)
	}
	return n, err
}

func (c opened) Close() error {
	c.close()
	return nil
}

// WriteContent makes a backup that is not encrypted of such an archive, which write writes. The backup appears only when it is complete.
func WriteContent(path string, write func(io.Writer) error) error {
	return atomicfile.WriteWith(path, 0o600, func(out *os.File) error {
		packed, err := newCompressor(out)
		if err != nil {
			return err
		}
		return errors.Join(write(packed), packed.Close())
	})
}

// ExtractDatabase writes the file of a backup that has etcd's data to path.
func ExtractDatabase(path string, keys Keys, to string, limit *throttle.Limit) error {
	found := false
	_, err := walk(path, keys, func(f File) (string, error) {
		if f.Name != Database {
			return "", nil
		}
		found = true
		return to, nil
	}, limit)
	if err == nil && !found {
		err = fmt.Errorf("%s has no data of etcd", path)
	}
	return err
}
