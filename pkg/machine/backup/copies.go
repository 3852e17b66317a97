package backup

import (
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
)

// Summary is what is known of a backup without its keys.
type Summary struct {
	Name     string    `json:"name"`
	Created  time.Time `json:"created"`
	Version  string    `json:"version"` // coracle's
	Node     string    `json:"node"`
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
const noteSuffix = ".json"

// Failed is why the copy is not good, "" if it is.
func (c Copy) Failed() string {
	if c.Error != "" {
		return c.Error
	}
	return c.BucketError
}

// Note writes what is known of a copy beside it.
func (c Copy) Note() error {
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(c.File+noteSuffix, append(text, '\n'), 0o600)
}

// Copies lists the backups in a directory, in the order of their times. Of one without a note, as of an earlier version or copied from elsewhere,
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
	slices.SortFunc(all, func(x, y Copy) int { return x.Created.Compare(y.Created) })
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

// RemoveLeft removes what killed saves of backups whose names begin with a prefix have left in a directory, while Lock keeps others from saving.
func RemoveLeft(dir, prefix string) error {
	left, err := filepath.Glob(filepath.Join(dir, "."+prefix+"*"+plainSuffix+"*")) // as package atomicfile calls unfinished files
	for _, path := range left {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

// Surplus returns what is more than keep of the things whose names begin with a prefix, the oldest first; none if keep is 0.
func Surplus[T any](all []T, name func(T) string, prefix string, keep int) (surplus []T) {
	for _, c := range all {
		if strings.HasPrefix(name(c), prefix) {
			surplus = append(surplus, c)
		}
	}
	if keep == 0 || len(surplus) <= keep {
		return nil
	}
	return surplus[:len(surplus)-keep]
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
func ExtractDatabase(path string, keys Keys, to string) error {
	found := false
	_, err := walk(path, keys, func(f File) (string, error) {
		if f.Name != Database {
			return "", nil
		}
		found = true
		return to, nil
	})
	if err == nil && !found {
		err = fmt.Errorf("%s has no data of etcd", path)
	}
	return err
}

// Attempt is the last time that this machine tried to make a copy.
type Attempt struct {
	Time  time.Time `json:"time"`
	Error string    `json:"error,omitempty"` // "" if all is well
	Copy  Copy      `json:"copy,omitzero"`
	File  string    `json:"file,omitempty"` // of the copy
}

// lastAttempt is the name of the file, in the directory of copies that are nowhere else.
const lastAttempt = "last.json"

// Note writes the attempt, in place of the one before.
func (a Attempt) Note(dir string) error {
	text, err := json.MarshalIndent(a, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, lastAttempt), append(text, '\n'), 0o600)
}

// LastAttempt returns the last attempt, nil if there was none or its note cannot be read.
func LastAttempt(dir string) *Attempt {
	var a Attempt
	text, err := os.ReadFile(filepath.Join(dir, lastAttempt))
	if err != nil || json.Unmarshal(text, &a) != nil {
		return nil
	}
	return &a
}

// Text describes the attempt to people.
func (a Attempt) Text() string {
	switch {
	case a.Error != "":
		return "FAILED: " + a.Error
	case a.Copy.Bucket != "":
		return a.File + ", and in " + a.Copy.Bucket
	}
	return a.File
}
