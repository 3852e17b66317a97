package containerd

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/v2/core/diff"
	"github.com/containerd/containerd/v2/core/mount"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// syncLayers makes containerd's instance of the plugin flush each layer to the disk before the layer counts as unpacked. Otherwise a
// power cut some seconds later leaves empty files in a layer that is there for containerd, so that its image starts no container for ever.
// containerd has a setting for this only in its service for clients, not for pulls (what internal/cri/server/images/image_pull.go says of ImagePullWithSyncFs).
func syncLayers(instance any, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	if _, again := instance.(syncedDiffer); again { // another start in the same process
		return instance, nil
	}
	d, ok := instance.(differ)
	if !ok {
		return nil, fmt.Errorf("what unpacks containerd's layers is a %T", instance)
	}
	return syncedDiffer{d}, nil
}

type differ interface {
	diff.Comparer
	diff.Applier
}

type syncedDiffer struct{ differ }

// Apply implements diff.Applier.
func (s syncedDiffer) Apply(ctx context.Context, layer ocispec.Descriptor, to []mount.Mount, opts ...diff.ApplyOpt) (ocispec.Descriptor, error) {
	return s.differ.Apply(ctx, layer, to, append(opts, diff.WithSyncFs(true))...)
}
