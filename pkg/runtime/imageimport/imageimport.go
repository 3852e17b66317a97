// Package imageimport imports the image archives that came with coracle and those that the user put into a directory,
// while the node is already starting, and each only once.
package imageimport

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/events"
	"github.com/fsnotify/fsnotify"
	"github.com/sirupsen/logrus"

	archives "github.com/coracle-dev/coracle/pkg/runtime/images"
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
	c := containerdImages{client: client, snapshotter: im.Snapshotter}
	w := newWork(im, c.bring, c.present)
	for _, file := range list(im.System) {
		if err := w.once(ctx, file); err != nil {
			return err
		}
	}
	ready()
	deleted, _ := client.Subscribe(ctx, `topic=="/images/delete"`)
	return w.follow(ctx, deleted, lookAgain)
}

const (
	// quiet is how long a directory must not change before its files count as complete.
	quiet = time.Second
	// lookAgain is how often the directory itself is compared with the one that is watched: it may have been
	// made anew, and no event tells that a file system was mounted on it.
	lookAgain = 10 * time.Second
)

// follow imports the user's archives, and again after every change of the directory and some time after a failure. It
// brings images of the payload back when somebody deletes them: no pod could start without.
func (w *work) follow(ctx context.Context, deleted <-chan *events.Envelope, again time.Duration) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watching %s: %w", w.User, err)
	}
	defer watcher.Close()
	lists := make(chan struct{}, 1)
	var pulling sync.WaitGroup
	defer pulling.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pulling.Go(func() { w.followLists(ctx, lists) })

	settled, look := time.NewTimer(0), time.NewTicker(again)
	defer look.Stop()
	watched, err := directory(w.User)
	if err != nil {
		return err
	}
	if err := watcher.Add(w.User); err != nil {
		return fmt.Errorf("watching %s: %w", w.User, err)
	}
	for ctx.Err() == nil {
		retry := time.NewTimer(time.Until(w.retryAt()))
		select {
		case <-ctx.Done():
		case event := <-watcher.Events:
			if event.Name == w.User && event.Has(fsnotify.Remove|fsnotify.Rename) {
				watched = nil // the next one may have the same inode
			}
			if !event.Has(fsnotify.Chmod) {
				settled.Reset(quiet)
			}
		case err := <-watcher.Errors: // events were lost
			logrus.WithField("component", "images").WithError(err).Warn("watching " + w.User)
			settled.Reset(quiet)
		case <-look.C:
			if now := w.watch(watcher, watched); now != watched {
				watched = now
				settled.Reset(quiet)
			}
		case event := <-deleted:
			if event == nil {
				deleted = nil // containerd stops; what was deleted is noticed at the next start
				break
			}
			w.importAll(ctx, list(w.System))
		case <-retry.C:
			w.forgetGone()
			w.importAll(ctx, w.failedOf(w.System))
			w.importAll(ctx, list(w.User))
		case <-settled.C:
			w.forgetGone()
			w.importAll(ctx, list(w.User))
			select {
			case lists <- struct{}{}:
			default: // it is going to look anyway
			}
		}
		retry.Stop()
	}
	return nil
}

// watch keeps the watcher on the user's directory, which is made if it is missing. It returns which directory is watched.
func (w *work) watch(watcher *fsnotify.Watcher, watched fs.FileInfo) fs.FileInfo {
	now, err := directory(w.User)
	if err == nil && watched != nil && os.SameFile(now, watched) {
		return watched
	}
	if err == nil {
		_ = watcher.Remove(w.User) // what had this name
		err = watcher.Add(w.User)
	}
	if err != nil && err.Error() != w.trouble {
		w.trouble = err.Error()
		logrus.WithField("component", "images").WithError(err).Warn("the directory of image archives is not watched: trying again")
	}
	if err != nil {
		return nil
	}
	w.trouble = ""
	return now
}

// directory makes a directory that is missing and says which it is.
func directory(dir string) (fs.FileInfo, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the directory of image archives: %w", err)
	}
	return os.Stat(dir)
}

// importAll imports archives of a directory; lists of images are left to followLists.
func (w *work) importAll(ctx context.Context, files []string) {
	for _, file := range files {
		if !isList(file) {
			w.try(ctx, file)
		}
	}
}

// followLists pulls what lists name each time that it is told to look, apart from the archives: a registry that does not
// answer holds a pull up for long.
func (w *work) followLists(ctx context.Context, look <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-look:
		}
		for _, file := range list(w.User) {
			if isList(file) {
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
