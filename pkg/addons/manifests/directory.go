package manifests

import (
	"cmp"
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

	"github.com/coracle-dev/coracle/pkg/core/controlplaneuser"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/state"
)

// orphaned reports whether a record is of a user's file in another directory than the present one, or in one that was
// emptied. Its objects are not removed.
func (d *deployer) orphaned(r record) bool { return !r.file.embedded() && r.dirID != d.dirID }

// look reads the user's directory. If it was replaced, all files are applied anew, so that their records name the new one.
func (d *deployer) look() ([]*file, error) {
	before, err := controlplaneuser.DirID(d.read())
	if err != nil {
		return nil, err
	}
	found, err := readDir(d.read(), d.Node)
	if err != nil {
		return nil, err
	}
	if after, err := controlplaneuser.DirID(d.read()); err != nil || after != before {
		return nil, cmp.Or(err, errReplaced)
	}
	if before != d.dirID {
		if d.dirID != "" {
			maps.DeleteFunc(d.files, func(id fileID, _ *file) bool { return !id.embedded() })
		}
		d.dirID = before
		d.warnOfOrphans(found)
	}
	return found, nil
}

// errReplaced means that the directory is to be read again, which the watch of it sees to.
var errReplaced = errors.New("another directory took its place while it was read")

// warnOfOrphans names the files of orphaned records that are not in the directory, with their objects.
func (d *deployer) warnOfOrphans(found []*file) {
	var orphans []string
	for id, r := range d.inventory {
		if !d.orphaned(r) || slices.ContainsFunc(found, func(f *file) bool { return f.id == id }) {
			continue
		}
		var objects []string
		for _, e := range r.objects {
			objects = append(objects, e.String())
		}
		orphans = append(orphans, fmt.Sprintf("%s (%s)", id.name, strings.Join(objects, ", ")))
	}
	if len(orphans) == 0 {
		return
	}
	slices.Sort(orphans)
	d.log.WithFields(logrus.Fields{"dir": d.Dir, "files": strings.Join(orphans, "; ")}).Warn("the directory of manifests was replaced or " +
		"emptied: objects of files that were in it are not removed. Put the files back, or delete the objects and the files' ConfigMaps " +
		inventoryNamespace + "/" + inventoryPrefix + "*")
}

// unsettled is how long it is too early to believe that a file which is missing after a start was removed: you may be
// filling the directory.
func (d *deployer) unsettled() time.Duration {
	wait := settleFiles - d.now().Sub(d.scanned)
	if d.quietSinceStart = d.quietSinceStart || wait <= 0; d.quietSinceStart {
		return 0
	}
	return wait
}

// readDir returns the files of the user's directory by their names relative to it; files that cannot be read are broken.
// The directory may be a link. After an error, nothing is known about its content.
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
			return nil // removed meanwhile, which a link without a target is not
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

// isManifest reports whether a file's name is that of a manifest.
func isManifest(name string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(name)))
}

// ignored reports whether a name is that of a hidden file, or of a temporary one of an editor or a copying program.
func ignored(name string) bool {
	return strings.HasPrefix(name, ".") || strings.HasPrefix(name, "#") || strings.HasSuffix(name, "~")
}

// skipped reports whether there is a file of the manifest's name with .skip added, which excludes the manifest.
func skipped(dir, name string) bool {
	return paths.Exists(filepath.Join(dir, name+".skip"))
}
