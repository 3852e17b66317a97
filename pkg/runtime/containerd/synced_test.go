package containerd

import (
	"context"
	"errors"
	"testing"

	"github.com/containerd/containerd/v2/core/diff"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// fakeDiffer remembers the settings of Apply.
type fakeDiffer struct {
	diff.Comparer
	config *diff.ApplyConfig
}

func (f fakeDiffer) Apply(ctx context.Context, _ ocispec.Descriptor, _ []mount.Mount, opts ...diff.ApplyOpt) (d ocispec.Descriptor, err error) {
	for _, o := range opts {
		err = errors.Join(err, o(ctx, d, f.config))
	}
	return d, err
}

// TestSyncLayers: layers are flushed whoever unpacks them, and whatever the caller asks for.
func TestSyncLayers(t *testing.T) {
	f := fakeDiffer{config: &diff.ApplyConfig{}}
	for range 2 { // a second start in the process
		wrapped, err := syncLayers(f, nil)
		if err == nil {
			wrapped, err = syncLayers(wrapped, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		_, err = wrapped.(diff.Applier).Apply(t.Context(), ocispec.Descriptor{}, nil, diff.WithSyncFs(false))
		if err != nil || !f.config.SyncFs {
			t.Errorf("a layer is not flushed: %v", err)
		}
	}
	if _, err := syncLayers(nil, errors.New("cause")); err == nil {
		t.Error("an error is lost")
	}
	if _, err := syncLayers("another thing", nil); err == nil {
		t.Error("it accepts anything")
	}
	for _, r := range registry.Graph(func(*plugin.Registration) bool { return false }) {
		if r.URI() == differPlugin {
			return
		}
	}
	t.Error("containerd has no such plugin any more: " + differPlugin)
}
