package manifests

import (
	"context"
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

// settle is how long a tree must be quiet before it is read: copying programs write in pieces.
const settle = 100 * time.Millisecond

// watchTree sends when manifests in a directory, or below it, may have changed. The directory is made, also when it
// is removed later.
func watchTree(ctx context.Context, dir string) (<-chan struct{}, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w", dir, err)
	}
	if err := addTree(watcher, dir); err != nil {
		watcher.Close()
		return nil, err
	}
	changes := make(chan struct{}, 1)
	go func() {
		defer watcher.Close()
		quiet := time.NewTimer(time.Hour)
		quiet.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case event := <-watcher.Events:
				if interesting(watcher, dir, event) {
					quiet.Reset(settle)
				}
			case <-watcher.Errors: // events were lost
				quiet.Reset(settle)
			case <-quiet.C:
				select {
				case changes <- struct{}{}:
				default: // one is waiting already
				}
			}
		}
	}()
	return changes, nil
}

// interesting reports whether an event may concern a manifest, and keeps the watcher on all directories.
func interesting(watcher *fsnotify.Watcher, dir string, event fsnotify.Event) bool {
	if event.Name == dir && event.Has(fsnotify.Remove|fsnotify.Rename) {
		_ = addTree(watcher, dir)
		return true
	}
	if ignored(filepath.Base(event.Name)) || event.Op == fsnotify.Chmod {
		return false
	}
	if info, err := os.Stat(event.Name); err == nil && info.IsDir() {
		if event.Has(fsnotify.Create) {
			_ = addTree(watcher, event.Name)
		}
		return true
	}
	name := strings.TrimSuffix(event.Name, ".skip")
	return isManifest(name) || filepath.Ext(name) == "" // maybe a directory that is gone
}

func addTree(watcher *fsnotify.Watcher, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("making the directory of manifests: %w", err)
	}
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return nil
		}
		if ignored(entry.Name()) && path != dir {
			return fs.SkipDir
		}
		if err := watcher.Add(path); err != nil {
			return fmt.Errorf("watching %s: %w", path, err)
		}
		return nil
	})
}

// kindWatch tells when the API may have learnt new kinds, while somebody wants to know.
type kindWatch struct {
	changed chan struct{}
	start   func(context.Context)
	parent  context.Context
	stop    context.CancelFunc
}

// kindWatch follows CustomResourceDefinitions: their names only, an event for each step towards being served.
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

// want starts or ends the watch.
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
