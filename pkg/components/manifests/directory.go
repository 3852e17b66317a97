package manifests

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/atomicfile"
	"github.com/coracle-dev/coracle/pkg/state"
)

// idFile is in the user's directory and says which directory that is, in any text. A file that is not in another one, the
// empty one of a new disk or of a mount that is not there yet, was not removed by anybody.
const idFile = ".coracle-id"

// madeEmpty begins the identity of a directory that had no manifests when it got one. Records of coracle versions that
// knew no identities are not of such a directory.
const madeEmpty = "empty-"

// origin is the user's directory, as it was recognised last.
type origin struct {
	id    string // "" if it has none and cannot be given one
	root  fs.FileInfo
	older bool // records without an identity are of this directory
}

// foreign reports whether a record is of a user's file in another directory. It is left alone.
func (o origin) foreign(r record) bool {
	if r.file.embedded() {
		return false
	}
	return r.dir == "" && !o.older || r.dir != "" && r.dir != o.id
}

// recognise finds out which directory it is that holds these files, and gives it an identity if it has none. It reports
// false when that cannot be known.
func (d *deployer) recognise(found []*file) bool {
	root, err := os.Stat(d.Dir)
	if err != nil {
		return false
	}
	path := filepath.Join(d.Dir, idFile)
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	now := origin{id: strings.TrimSpace(string(data)), root: root}
	same := d.origin.root != nil && os.SameFile(root, d.origin.root)
	if now.id == "" {
		now.id = rand.Text()
		switch {
		case same && len(found) > 0 && d.origin.id != "":
			now.id = d.origin.id // only the file was removed, as copying and cleaning programs do
		case len(found) == 0:
			now.id = madeEmpty + now.id
		}
		if err := atomicfile.Write(path, []byte(now.id+"\n"), 0o600); err != nil {
			now.id = ""
		}
	}
	if same && now.id == d.origin.id {
		return true
	}
	now.older = now.id != "" && !strings.HasPrefix(now.id, madeEmpty) || now.id == "" && len(found) > 0
	d.origin = now
	d.warnOfForeign(found)
	return true
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
// The directory may be a link. ok is false when it cannot be read: then nothing is known about what is in it.
func readDir(dir, node string) (files []*file, ok bool) {
	dir, err := filepath.EvalSymlinks(dir)
	if info, statErr := os.Stat(dir); err != nil || statErr != nil || !info.IsDir() {
		return nil, false
	}
	ok = true
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, path)
		switch {
		case err != nil:
			ok = ok && errors.Is(err, fs.ErrNotExist) && path != dir
			return nil
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
	return files, ok
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
	_, err := os.Stat(filepath.Join(dir, name+".skip"))
	return err == nil
}
