package manifests

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/state"
)

// idFile is in the user's directory and says which directory that is, in any text. A file that is not in another one, the
// empty one of a new disk or of a mount that is not there yet, was not removed by anybody.
const idFile = ".coracle-id"

// madeEmpty begins the identity of a directory that had no manifests when it got one. Records of coracle versions that
// knew no identities are not of such a directory.
const madeEmpty = "empty-"

// origin is the user's directory, as it was recognised last.
type origin struct {
	place
	older bool // records without an identity are of this directory
}

// foreign reports whether a record is of a user's file in another directory. It is left alone.
func (o origin) foreign(r record) bool {
	if r.file.embedded() {
		return false
	}
	return r.dir == "" && !o.older || r.dir != "" && r.dir != o.id
}

// place is a directory as it was met.
type place struct {
	root fs.FileInfo
	id   string // "" if it has none
}

// locate finds out which directory is there.
func locate(dir string) (place, error) {
	root, err := os.Stat(dir)
	if err != nil {
		return place{}, err
	}
	id, err := readID(filepath.Join(dir, idFile))
	return place{root, id}, err
}

// readID is the identity in a file, "" if there is none. The error names the file.
func readID(path string) (string, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return strings.TrimSpace(string(data)), err
}

// claim puts an identity into a directory that has none. What the file says afterwards counts: another server that has the
// same directory may have been first, and a directory that cannot be written gets none.
func claim(path, id string) {
	own := path + "." + rand.Text()
	defer os.Remove(own)
	if atomicfile.Write(own, []byte(id+"\n"), 0o644) != nil {
		return
	}
	if os.Link(own, path) != nil { // it is there, maybe emptied, or the file system has no links
		if theirs, err := readID(path); err == nil && theirs == "" {
			_ = os.Rename(own, path)
		}
	}
	_ = atomicfile.SyncDir(filepath.Dir(path))
}

// look reads the user's directory, and recognises it. Between the two there may be another: a mount that is late.
func (d *deployer) look() ([]*file, error) {
	before, err := locate(d.Dir)
	if err != nil {
		return nil, err
	}
	found, err := readDir(d.Dir, d.Node)
	if err != nil {
		return nil, err
	}
	return found, d.recognise(before, found)
}

// errExchanged is no error for long: there is news of the other directory.
var errExchanged = errors.New("another directory took its place while it was read; it is read again")

// recognise finds out which directory it is that holds these files, and gives it an identity if it has none. Before is
// what was there before they were read.
func (d *deployer) recognise(before place, found []*file) error {
	same := d.origin.root != nil && os.SameFile(before.root, d.origin.root)
	if before.id == "" {
		id := rand.Text()
		switch {
		case same && len(found) > 0 && d.origin.id != "":
			id = d.origin.id // only the file was removed, as copying and cleaning programs do
		case len(found) == 0:
			id = madeEmpty + id
		}
		claim(filepath.Join(d.Dir, idFile), id)
	}
	after, err := locate(d.Dir)
	if err != nil {
		return err
	}
	if !os.SameFile(before.root, after.root) || before.id != "" && before.id != after.id {
		return errExchanged
	}
	if same && after.id == d.origin.id {
		return nil
	}
	if d.origin.root != nil && after.id != d.origin.id { // all is to be recorded as of this directory
		maps.DeleteFunc(d.files, func(id fileID, _ *file) bool { return !id.embedded() })
	}
	if d.origin.root != nil {
		d.arrival = arrival{patience: exchanged, since: time.Now()}
	}
	older := after.id != "" && !strings.HasPrefix(after.id, madeEmpty) || after.id == "" && len(found) > 0
	d.origin = origin{place: after, older: older}
	d.warnOfForeign(found)
	return nil
}

// warnOfForeign names what was made of files that were in another directory, and are not in this one.
func (d *deployer) warnOfForeign(found []*file) {
	var left []string
	for id, r := range d.inventory {
		if !d.origin.foreign(r) || slices.ContainsFunc(found, func(f *file) bool { return f.id == id }) {
			continue
		}
		var objects []string
		for _, e := range r.objects {
			objects = append(objects, e.String())
		}
		left = append(left, fmt.Sprintf("%s (%s)", id.name, strings.Join(objects, ", ")))
	}
	if len(left) == 0 {
		return
	}
	slices.Sort(left)
	d.log.WithFields(logrus.Fields{"dir": d.Dir, "files": strings.Join(left, "; ")}).Warn("the directory of manifests is not the one that " +
		"these files were in: their objects stay. Put the files into it to have them looked after again, or delete the objects and the files' " +
		"ConfigMaps " + inventoryNamespace + "/" + inventoryPrefix + "*")
}

// readDir returns the files of the user's directory, by name relative to it: those that cannot be read as broken.
// The directory may be a link. After an error nothing is known about what is in it.
func readDir(dir, node string) (files []*file, err error) {
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, err
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil, cmp.Or(err, fmt.Errorf("%s is not a directory", dir))
	}
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, path)
		switch {
		case err != nil && errors.Is(err, fs.ErrNotExist) && path != dir:
			return nil
		case err != nil:
			return err
		case ignored(entry.Name()) && path != dir:
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case entry.IsDir() || !isManifest(name):
			return nil
		}
		id := fileID{name: name, node: node}
		if skipped(dir, name) {
			files = append(files, &file{id: id, status: state.Manifest{File: name, State: state.ManifestSkipped}})
			return nil
		}
		data, err := os.ReadFile(path)
		if _, gone := os.Lstat(path); errors.Is(gone, fs.ErrNotExist) {
			return nil // just now; a link whose target is away for a while is still there
		}
		if err != nil {
			f := &file{id: id, status: state.Manifest{File: name}}
			files = append(files, f.broken(fmt.Errorf("reading it: %w", err)))
			return nil
		}
		files = append(files, newFile(id, data))
		return nil
	})
	return files, err
}

// isManifest goes by the name.
func isManifest(name string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(name)))
}

// ignored are the names of files that editors and copying programs make in passing, and of hidden ones.
func ignored(name string) bool {
	return strings.HasPrefix(name, ".") || strings.HasPrefix(name, "#") || strings.HasSuffix(name, "~")
}

// skipped reports whether a file of the same name and .skip is beside the manifest: coracle keeps its hands off.
func skipped(dir, name string) bool {
	return paths.Exists(filepath.Join(dir, name+".skip"))
}
