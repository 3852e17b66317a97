package manifests

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/coracle-dev/coracle/pkg/core/controlplaneuser"
	"github.com/coracle-dev/coracle/pkg/core/filewatch"
)

// watchDir sends after manifests in a directory, or below it, have changed. It creates the directory if it is missing or
// removed later. If the directory is a link without a target, it waits for the target.
func watchDir(ctx context.Context, dir string) (<-chan struct{}, error) {
	if err := makeDir(dir); err != nil {
		return nil, fmt.Errorf("making the directory of manifests: %w", err)
	}
	return filewatch.Changes(ctx, func() string { return stateOf(dir) }), nil
}

func makeDir(dir string) error {
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		return nil // also a link without a target
	}
	return os.MkdirAll(dir, 0o700)
}

// stateOf describes the manifests in a directory: the result differs after each change.
func stateOf(dir string) string {
	_ = makeDir(dir) // it is tried again at the next look
	root, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err.Error()
	}
	id, _ := controlplaneuser.DirID(root)
	states := []string{id}
	_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			states = append(states, err.Error())
		case ignored(entry.Name()) && path != root:
			if entry.IsDir() {
				return fs.SkipDir
			}
		case !entry.IsDir() && isManifest(strings.TrimSuffix(entry.Name(), ".skip")):
			states = append(states, path, filewatch.State(path))
		}
		return nil
	})
	return strings.Join(states, "\n")
}

// kindWatch watches CustomResourceDefinitions while a file waits for its kind.
type kindWatch struct {
	metadata metadata.Interface
	changed  chan struct{} // receives a value when the API server may serve new kinds
	stop     context.CancelFunc
}

// want starts or stops the watch.
func (k *kindWatch) want(ctx context.Context, yes bool) {
	switch {
	case yes && k.stop == nil:
		ctx, k.stop = context.WithCancel(ctx)
		go k.run(ctx)
	case !yes && k.stop != nil:
		k.stop()
		k.stop = nil
	}
}

func (k *kindWatch) run(ctx context.Context) {
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	w, err := k.metadata.Resource(crds).Watch(ctx, metav1.ListOptions{})
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
