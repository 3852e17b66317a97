// Package imageimport imports the image archives of the payload and of the user's directory, each once, while the node starts.
package imageimport

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/events"

	archives "github.com/coracle-dev/coracle/pkg/runtime/images"
)

// Images is the component that imports two directories of archives.
type Images struct {
	Socket      string // containerd's
	Snapshotter string // to which images are unpacked at once
	System      string // the directory with the archives of the payload; Run fails if one cannot be imported
	User        string // the directory with the user's archives and lists of images to pull (*.txt); made if missing
	Index       string // the file that records the imported archives
	// Report is called with the results of all archives after every change. It may be nil.
	Report func([]Archive)
}

// Archive is the result of one file.
type Archive struct {
	File   string           `json:"file"`
	Images []archives.Image `json:"images,omitempty"`
	Error  string           `json:"error,omitempty"`
}

// Run imports the archives, and new ones when they appear, until ctx is done. It is ready when the payload's images are imported.
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
	return w.follow(ctx, deleted, lookInterval)
}

// lookInterval is the time between two looks at the user's directory. A directory is read once it is the same in two looks: its
// files are complete then.
const lookInterval = 2 * time.Second

// follow imports the user's archives, and again after every change of the directory and some time after a failure. It imports
// archives of the payload again when one of their images is deleted, because no pod can start without them.
//
// The directory is polled. No event reports that a file system was mounted on it, or that it was replaced by another one.
func (w *work) follow(ctx context.Context, deleted <-chan *events.Envelope, interval time.Duration) error {
	lists := make(chan struct{}, 1)
	var pulling sync.WaitGroup
	defer pulling.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pulling.Go(func() { w.followLists(ctx, lists) })
	importUser := func() {
		w.forgetGone()
		w.importAll(ctx, list(w.User))
		select {
		case lists <- struct{}{}:
		default: // a notification is pending
		}
	}

	if err := os.MkdirAll(w.User, 0o755); err != nil {
		return fmt.Errorf("making the directory of image archives: %w", err)
	}
	imported := listing(w.User)
	importUser()
	look := time.NewTicker(interval)
	defer look.Stop()
	for seen := imported; ctx.Err() == nil; {
		retry := time.NewTimer(time.Until(w.retryAt()))
		select {
		case <-ctx.Done():
		case <-look.C:
			_ = os.MkdirAll(w.User, 0o755) // it was removed; another error shows at the next start
			now := listing(w.User)
			if now == seen && now != imported {
				imported = now
				importUser()
			}
			seen = now
		case event := <-deleted:
			if event == nil {
				deleted = nil // containerd stops; missing images are noticed at the next start
				break
			}
			w.importAll(ctx, list(w.System))
		case <-retry.C:
			w.forgetGone()
			w.importAll(ctx, w.failedOf(w.System))
			w.importAll(ctx, list(w.User))
		}
		retry.Stop()
	}
	return nil
}

// listing is a text about the archives in a directory that differs when one of them was added, changed or removed.
func listing(dir string) string {
	var text strings.Builder
	for _, file := range list(dir) {
		s, err := stampOf(file)
		fmt.Fprintln(&text, file, s, err)
	}
	return text.String()
}

// importAll imports archives of a directory; lists of images are left to followLists.
func (w *work) importAll(ctx context.Context, files []string) {
	for _, file := range files {
		if !isList(file) {
			w.try(ctx, file)
		}
	}
}

// followLists pulls the images of lists after each notification. It runs in parallel to the import of archives, because a registry that
// does not answer delays a pull for long.
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

// list returns the files of a directory without hidden and partial ones. A missing directory has none.
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
