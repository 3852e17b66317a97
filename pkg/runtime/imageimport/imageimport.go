// Package imageimport imports the image archives of the payload and of the user's directory at the start, and follows the directories
// as long as the node runs.
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

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/state"
	archives "github.com/coracle-dev/coracle/pkg/runtime/images"
)

// Images is the component that imports two directories of archives.
type Images struct {
	Socket      string // containerd's
	Root        string // containerd's
	Snapshotter string // to which images are unpacked at once
	System      string // the directory with the archives of the payload; Run fails if one cannot be imported
	User        string // the directory with the user's archives and lists of images to pull (*.txt); made if missing
	Index       string // the file that records the imported archives
	Compared    string // the file with the boot in which the payload's images were compared with the archives
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
	c := containerdImages{client: client, root: im.Root, snapshotter: im.Snapshotter}
	w := newWork(im, c.bring, c.present)
	bring := w.once
	boot := state.BootID()
	last, err := os.ReadFile(im.Compared)
	compare := err != nil || string(last) != boot // it may have been a power cut
	if compare {
		bring = func(ctx context.Context, file string) error { return w.intact(ctx, file, c.mendContent, c.mendLayers) }
	}
	for _, file := range list(im.System) {
		if err := bring(ctx, file); err != nil {
			return err
		}
	}
	if compare {
		w.dropDamaged(ctx, c.dropDamaged)
	}
	if !w.unknown {
		if err := atomicfile.WriteVolatile(im.Compared, []byte(boot), 0o644); err != nil {
			return err
		}
	}
	ready()
	return w.follow(ctx, lookInterval)
}

// lookInterval is the time between two looks at the directories.
const lookInterval = 2 * time.Second

// follow imports the user's archives when they appear or change, and archives again that failed. It imports archives of the
// payload again when one of their images was deleted, because no pod can start without them.
//
// The directories are polled. No event reports that a file system was mounted on one, or that it was replaced by another.
func (w *work) follow(ctx context.Context, interval time.Duration) error {
	lists := make(chan []string, 1)
	var pulling sync.WaitGroup
	defer pulling.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pulling.Go(func() { w.followLists(ctx, lists) })
	if err := os.MkdirAll(w.User, 0o755); err != nil {
		return fmt.Errorf("making the directory of image archives: %w", err)
	}
	look := time.NewTicker(interval)
	defer look.Stop()
	w.settled() // files that are there at the start are complete
	for ctx.Err() == nil {
		w.forgetGone()
		files := w.settled()
		w.tryAll(ctx, append(list(w.System), files...), false)
		select {
		case lists <- files:
		default: // the last ones are still being pulled
		}
		select {
		case <-ctx.Done():
		case <-look.C:
			_ = os.MkdirAll(w.User, 0o755) // it was removed; another error shows at the next start
		}
	}
	return nil
}

// settled returns the user's files that are as they were at the last call: they are complete.
func (w *work) settled() (files []string) {
	now := map[string]stamp{}
	for _, file := range list(w.User) {
		now[file], _ = stampOf(file) // importing it gives the same error
		if last, ok := w.seen[file]; ok && last == now[file] {
			files = append(files, file)
		}
	}
	w.seen = now
	return files
}

// tryAll imports the archives among files, or, if lists is set, pulls the images of the lists among them.
func (w *work) tryAll(ctx context.Context, files []string, lists bool) {
	for _, file := range files {
		if isList(file) == lists {
			w.try(ctx, file)
		}
	}
}

// followLists pulls the images of lists. It runs in parallel to the import of archives, because a registry that does not answer
// delays a pull for long.
func (w *work) followLists(ctx context.Context, lists <-chan []string) {
	for {
		select {
		case <-ctx.Done():
			return
		case files := <-lists:
			w.tryAll(ctx, files, true)
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
