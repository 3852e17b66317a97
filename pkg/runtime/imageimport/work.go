package imageimport

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	archives "github.com/coracle-dev/coracle/pkg/runtime/images"
)

// work is the state of Images.
type work struct {
	Images
	bring   func(ctx context.Context, file string) ([]archives.Image, error)
	present func(context.Context, []archives.Image) bool

	mu      sync.Mutex
	index   map[string]imported // by path as given, as all below
	reports map[string]Archive
	failed  map[string]failure

	unknown bool // after intact: whether an archive's images are damaged

	seen map[string]stamp // by follow, at its last look at the user's directory
}

func newWork(im Images, bring func(context.Context, string) ([]archives.Image, error), present func(context.Context, []archives.Image) bool) *work {
	return &work{Images: im, bring: bring, present: present, index: readIndex(im.Index), reports: map[string]Archive{}, failed: map[string]failure{}}
}

// failure is the last failure of a file.
type failure struct {
	stamp
	text  string
	tries int
	again time.Time // zero: when the file changes
}

// Pauses between tries of an archive. The reason may be temporary, such as a full disk, but each try reads the whole file. Archives of the
// payload are tried more often, because no pod can start without them.
const (
	firstPause  = 30 * time.Second
	lastPause   = time.Hour
	systemPause = 10 * time.Second
)

// try imports a file, and logs an error that is new.
func (w *work) try(ctx context.Context, file string) {
	w.mu.Lock()
	before := w.failed[file].text
	w.mu.Unlock()
	if err := w.once(ctx, file); err != nil && ctx.Err() == nil && err.Error() != before {
		logrus.WithField("component", "images").Error(err)
	}
}

// once imports a file, unless this state of it was imported and its images exist, or it failed and the pause is not over. The images of
// a user's file are looked for once in the life of the process.
func (w *work) once(ctx context.Context, file string) error {
	s, err := stampOf(file)
	if err != nil {
		err = fmt.Errorf("importing %s: %w", file, err)
	}
	w.mu.Lock()
	have, report := w.index[file], w.reports[file]
	last, failed := w.failed[file]
	w.mu.Unlock()
	fresh := report.File == "" || report.Error != ""
	switch {
	case err == nil && have.stamp == s && (!fresh && !w.system(file) || w.present(ctx, have.Images)):
		if fresh {
			w.done(file, have)
		}
		return nil
	case failed && last.stamp == s && (last.again.IsZero() || time.Now().Before(last.again)):
		return nil
	}
	var found []archives.Image
	began := time.Now()
	if err == nil {
		found, err = w.bring(ctx, file)
	}
	if err != nil {
		w.fail(file, s, last, err)
		return err
	}
	w.done(file, imported{stamp: s, Images: found})
	logrus.WithField("component", "images").WithField("took", time.Since(began).Round(time.Millisecond)).
		Infof("imported %s (%d images)", filepath.Base(file), len(found))
	return w.save()
}

// intact imports an archive of the payload, and replaces what is damaged of an earlier import: a disk that loses power or fails can leave
// files of zeros, and without the pause image no pod can start. What cannot be mended does not end the node.
func (w *work) intact(ctx context.Context, file string,
	content func(ctx context.Context, file string) (mended bool, err error), layers func(context.Context, []archives.Image) (mended bool, err error),
) error {
	log := logrus.WithField("component", "images")
	mended, err := content(ctx, file)
	if err != nil {
		w.unknown = true
		log.WithError(err).Errorf("comparing containerd's content with %s", file)
	}
	_, before := w.index[file]
	if mended {
		delete(w.index, file) // containerd has not been able to read its images
	}
	if err := w.once(ctx, file); err != nil || !before {
		return err
	}
	again, err := layers(ctx, w.index[file].Images)
	if err != nil {
		w.unknown = true
		log.WithError(err).Errorf("comparing the unpacked images with %s", file)
	}
	if mended || again {
		log.Warnf("containerd's files of %s were damaged, and are made again", filepath.Base(file))
	}
	return nil
}

// dropDamaged removes damaged images, and says so. The user's archives are imported again where they had them.
func (w *work) dropDamaged(ctx context.Context, drop func(context.Context) ([]string, error)) {
	log := logrus.WithField("component", "images")
	dropped, err := drop(ctx)
	for _, text := range dropped {
		log.Warn(text)
	}
	if err != nil {
		w.unknown = true
		log.WithError(err).Error("comparing containerd's images with their digests")
	}
}

// system reports whether a file belongs to the payload.
func (w *work) system(file string) bool { return filepath.Dir(file) == filepath.Clean(w.System) }

func (w *work) done(file string, i imported) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.index[file] = i
	delete(w.failed, file)
	w.report(Archive{File: file, Images: i.Images})
}

func (w *work) fail(file string, s stamp, last failure, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := failure{stamp: s, text: err.Error()}
	if last.stamp == s {
		next.tries = last.tries + 1
	}
	switch {
	case w.system(file):
		next.again = time.Now().Add(systemPause)
	case !isList(file):
		next.again = time.Now().Add(min(firstPause<<min(next.tries, 10), lastPause))
	}
	w.failed[file] = next
	w.report(Archive{File: file, Error: err.Error()})
}

// forgetGone removes the results of files that do not exist any more.
func (w *work) forgetGone() {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := len(w.reports)
	maps.DeleteFunc(w.failed, func(file string, _ failure) bool { return gone(file) })
	maps.DeleteFunc(w.reports, func(file string, _ Archive) bool { return gone(file) })
	if len(w.reports) != before {
		w.reportAll()
	}
}

func gone(file string) bool {
	_, err := os.Lstat(file)
	return os.IsNotExist(err)
}

// save writes the index, without files that do not exist any more.
func (w *work) save() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.index, func(file string, _ imported) bool { return gone(file) })
	return atomicfile.WriteJSON(w.Index, w.index, 0o644)
}

func (w *work) report(a Archive) {
	w.reports[a.File] = a
	w.reportAll()
}

func (w *work) reportAll() {
	if w.Report == nil {
		return
	}
	all := []Archive{}
	for _, file := range slices.Sorted(maps.Keys(w.reports)) {
		all = append(all, w.reports[file])
	}
	w.Report(all)
}
