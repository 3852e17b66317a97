// Package images imports the image archives that came with coracle and those that the user put into a directory,
// while the node is already starting, and each only once.
package images

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/fsnotify/fsnotify"
	"github.com/sirupsen/logrus"

	archives "github.com/coracle-dev/coracle/pkg/images"
)

// Images keeps containerd's images in step with two directories of archives.
type Images struct {
	Socket      string // containerd's
	Snapshotter string // unpacks images at once
	System      string // archives of the payload; one that cannot be imported is a failure
	User        string // the user's archives, and lists of images to pull (*.txt); made if missing, and watched
	Index       string // the file that remembers what has been imported
	// Report is told what became of each archive, after every change. It may be nil.
	Report func([]Archive)
}

// Archive is what became of one file.
type Archive struct {
	File   string           `json:"file"`
	Images []archives.Image `json:"images,omitempty"`
	Error  string           `json:"error,omitempty"`
}

// Run imports what is there, then what appears, until ctx is done. It is ready when the payload's images are there.
func (im Images) Run(ctx context.Context, ready func()) error {
	client, err := containerd.New(im.Socket)
	if err != nil {
		return fmt.Errorf("dialing containerd: %w", err)
	}
	defer client.Close()
	w := &work{Images: im, client: client, index: readIndex(im.Index), reports: map[string]Archive{}}
	for _, file := range list(im.System) {
		if err := w.once(ctx, file); err != nil {
			return err
		}
	}
	ready()
	if err := os.MkdirAll(im.User, 0o755); err != nil {
		return fmt.Errorf("making the directory of image archives: %w", err)
	}
	return w.follow(ctx)
}

// quiet is how long a directory must not change before its files count as complete.
const quiet = time.Second

// follow imports the user's archives, and again after every change of the directory. It brings images of the payload
// back when somebody deletes them: no pod could start without.
func (w *work) follow(ctx context.Context) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watching %s: %w", w.User, err)
	}
	defer watcher.Close()
	if err := watcher.Add(w.User); err != nil {
		return fmt.Errorf("watching %s: %w", w.User, err)
	}
	for _, file := range listsLast(list(w.User)) {
		w.try(ctx, file)
	}
	deleted, _ := w.client.Subscribe(ctx, `topic=="/images/delete"`)
	settled := time.NewTimer(0)
	<-settled.C
	for {
		select {
		case <-ctx.Done():
			return nil
		case event, ok := <-watcher.Events:
			if ok && !event.Has(fsnotify.Chmod) {
				settled.Reset(quiet)
			}
		case event := <-deleted:
			if event == nil {
				deleted = nil // containerd stops; what was deleted is noticed at the next start
				continue
			}
			for _, file := range list(w.System) {
				w.try(ctx, file)
			}
		case err := <-watcher.Errors:
			logrus.WithField("component", "images").WithError(err).Warn("watching " + w.User)
		case <-settled.C:
			for _, file := range listsLast(list(w.User)) {
				w.try(ctx, file)
			}
		}
	}
}

// list returns the archives in a directory: all but hidden and partial files. A directory that is not there has none.
func list(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var files []string
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".part") || strings.HasSuffix(name, ".tmp") {
			continue
		}
		files = append(files, filepath.Join(dir, name))
	}
	return files
}
