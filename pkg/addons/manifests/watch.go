package manifests

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// settle is how long a tree must not change before it is read: copying programs write in pieces.
const settle = 100 * time.Millisecond

// lookAgain is how often the directory is compared with the watched one: there is no event when a file system is mounted on
// it, or when a link is changed.
const lookAgain = 10 * time.Second

// tree is a directory that is watched with its subdirectories.
type tree struct {
	*fsnotify.Watcher
	dir  string      // may be a link
	root string      // where it leads
	info fs.FileInfo // of root, when it was added; nil if it was not there
}

// watchTree sends when manifests in a directory, or below it, may have changed. It creates the directory if it is missing or
// removed later. If the directory is a link without a target, it waits for the target.
func watchTree(ctx context.Context, dir string, again time.Duration) (<-chan struct{}, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w", dir, err)
	}
	t := &tree{Watcher: watcher, dir: dir}
	if err := t.addAll(); err != nil {
		watcher.Close()
		return nil, err
	}
	changes := make(chan struct{}, 1)
	go t.follow(ctx, changes, again)
	return changes, nil
}

func (t *tree) follow(ctx context.Context, changes chan<- struct{}, again time.Duration) {
	defer t.Close()
	quiet, look := time.NewTimer(time.Hour), time.NewTicker(again)
	quiet.Stop()
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-t.Events:
			if t.interesting(event) {
				quiet.Reset(settle)
			}
		case <-t.Errors: // events were lost
			quiet.Reset(settle)
		case <-look.C:
			if t.replaced() {
				_ = t.addAll()
				quiet.Reset(settle)
			}
		case <-quiet.C:
			select {
			case changes <- struct{}{}:
			default: // one is waiting already
			}
		}
	}
}

// replaced reports whether the directory is another one than the watched one.
func (t *tree) replaced() bool {
	info, err := os.Stat(t.dir)
	if err != nil {
		_, gone := os.Lstat(t.dir)
		return t.info != nil || errors.Is(gone, fs.ErrNotExist)
	}
	return t.info == nil || !os.SameFile(info, t.info)
}

// interesting reports whether an event may concern a manifest. It adds new directories to the watch.
func (t *tree) interesting(event fsnotify.Event) bool {
	if event.Name == t.root && event.Has(fsnotify.Remove|fsnotify.Rename) {
		_ = t.addAll()
		return true
	}
	if ignored(filepath.Base(event.Name)) || event.Op == fsnotify.Chmod {
		return false
	}
	if info, err := os.Stat(event.Name); err == nil && info.IsDir() {
		if event.Has(fsnotify.Create) {
			_ = t.add(event.Name)
		}
		return true
	}
	name := strings.TrimSuffix(event.Name, ".skip")
	return isManifest(name) || filepath.Ext(name) == "" // maybe a directory that is gone
}

// addAll watches the present directory, and no former one.
func (t *tree) addAll() (err error) {
	t.info = nil
	for _, path := range t.WatchList() {
		_ = t.Remove(path) // it may be gone
	}
	if _, err := os.Lstat(t.dir); errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(t.dir, 0o700); err != nil {
			return fmt.Errorf("making the directory of manifests: %w", err)
		}
	}
	if t.root, err = filepath.EvalSymlinks(t.dir); err != nil {
		return nil // a link that leads nowhere
	}
	if t.info, err = os.Stat(t.root); err != nil {
		return nil
	}
	return t.add(t.root)
}

func (t *tree) add(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return nil
		}
		if ignored(entry.Name()) && path != dir {
			return fs.SkipDir
		}
		if err := t.Add(path); err != nil {
			return fmt.Errorf("watching %s: %w", path, err)
		}
		return nil
	})
}

// kindWatch sends when the API server may serve new kinds, while that is wanted.
type kindWatch struct {
	changed chan struct{}
	start   func(context.Context)
	parent  context.Context
	stop    context.CancelFunc
}

// kindWatch watches the metadata of CustomResourceDefinitions.
func (d *deployer) kindWatch(ctx context.Context) *kindWatch {
	k := &kindWatch{changed: make(chan struct{}, 1), parent: ctx}
	k.start = func(ctx context.Context) {
		crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
		w, err := d.metadata.Resource(crds).Watch(ctx, metav1.ListOptions{})
		if err != nil {
			return // the files are tried again anyway, after a pause
		}
		defer w.Stop()
		for range w.ResultChan() {
			select {
			case k.changed <- struct{}{}:
			default:
			}
		}
	}
	return k
}

// want starts or stops the watch.
func (k *kindWatch) want(yes bool) {
	switch {
	case yes && k.stop == nil:
		var ctx context.Context
		ctx, k.stop = context.WithCancel(k.parent)
		go k.start(ctx)
	case !yes && k.stop != nil:
		k.stop()
		k.stop = nil
	}
}
