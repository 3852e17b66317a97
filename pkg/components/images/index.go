package images

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/atomicfile"
	archives "github.com/coracle-dev/coracle/pkg/images"
)

// stamp tells one state of a file from another without reading it. Links are resolved: the payload's directory has
// its digest in the name.
type stamp struct {
	File  string    `json:"file"`
	Size  int64     `json:"size"`
	Mtime time.Time `json:"mtime"`
}

// imported is what one file gave.
type imported struct {
	stamp
	Images []archives.Image `json:"images"`
}

// stampOf describes a file; a directory by the index in it.
func stampOf(file string) (stamp, error) {
	real, err := filepath.EvalSymlinks(file)
	if err != nil {
		return stamp{}, err
	}
	info, err := os.Stat(real)
	if err == nil && info.IsDir() {
		info, err = os.Stat(filepath.Join(real, "index.json"))
	}
	if err != nil {
		return stamp{}, err
	}
	return stamp{File: real, Size: info.Size(), Mtime: info.ModTime().UTC()}, nil
}

// readIndex returns what was imported from which file. An index that cannot be read means work, not failure.
func readIndex(file string) map[string]imported {
	index := map[string]imported{}
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, &index)
	}
	if err != nil && !os.IsNotExist(err) {
		logrus.WithField("component", "images").WithError(err).Warn("reading what was imported before: importing all again")
		return map[string]imported{}
	}
	return index
}

// work is a running import.
type work struct {
	Images
	client  *containerd.Client
	index   map[string]imported // by path as given
	reports map[string]Archive
}

// try imports a file of the user. A failure is logged and reported; it does not stop the others.
func (w *work) try(ctx context.Context, file string) {
	if err := w.once(ctx, file); err != nil && ctx.Err() == nil {
		logrus.WithField("component", "images").Error(err)
	}
}

// once imports a file unless this very file has been imported and its images are still there.
func (w *work) once(ctx context.Context, file string) error {
	s, err := stampOf(file)
	if err != nil {
		return fmt.Errorf("importing %s: %w", file, err)
	}
	have, known := w.index[file]
	if known && have.stamp == s && w.present(ctx, have.Images) {
		w.report(Archive{File: file, Images: have.Images})
		return nil
	}
	if last, tried := w.reports[file]; tried && last.Error != "" && have.stamp == s {
		return nil // it failed and has not changed
	}
	began := time.Now()
	found, err := w.bring(ctx, file)
	w.index[file] = imported{stamp: s, Images: found}
	if err != nil {
		w.report(Archive{File: file, Error: err.Error()})
		return err
	}
	w.report(Archive{File: file, Images: found})
	logrus.WithField("component", "images").WithField("took", time.Since(began).Round(time.Millisecond)).
		Infof("imported %s (%d images)", filepath.Base(file), len(found))
	return w.save()
}

// present reports whether the images are there under their names and digests.
func (w *work) present(ctx context.Context, want []archives.Image) bool {
	ctx = namespaces.WithNamespace(ctx, archives.Namespace)
	for _, image := range want {
		have, err := w.client.ImageService().Get(ctx, image.Name)
		if err != nil || have.Target.Digest != image.Digest {
			return false
		}
	}
	return len(want) > 0
}

// save writes the index, without files that are gone.
func (w *work) save() error {
	maps.DeleteFunc(w.index, func(file string, i imported) bool {
		_, err := os.Lstat(file)
		return err != nil || len(i.Images) == 0
	})
	data, err := json.Marshal(w.index)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(w.Index), 0o755); err != nil {
		return err
	}
	if err := atomicfile.Write(w.Index, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("writing what was imported: %w", err)
	}
	return nil
}

func (w *work) report(a Archive) {
	w.reports[a.File] = a
	if w.Report == nil {
		return
	}
	all := []Archive{}
	for _, file := range slices.Sorted(maps.Keys(w.reports)) {
		all = append(all, w.reports[file])
	}
	w.Report(all)
}
