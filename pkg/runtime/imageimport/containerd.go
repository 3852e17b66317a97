package imageimport

import (
	"context"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"

	archives "github.com/coracle-dev/coracle/pkg/runtime/images"
)

// containerdImages imports images into containerd.
type containerdImages struct {
	client            *containerd.Client
	root, snapshotter string
}

// bring imports an archive, or pulls a list.
func (c containerdImages) bring(ctx context.Context, file string) ([]archives.Image, error) {
	if isList(file) {
		return c.pull(ctx, file)
	}
	return archives.Import(ctx, c.client, file, archives.Options{Snapshotter: c.snapshotter})
}

// present reports whether containerd has the images under their names and digests.
func (c containerdImages) present(ctx context.Context, want []archives.Image) bool {
	ctx = namespaces.WithNamespace(ctx, archives.Namespace)
	for _, image := range want {
		have, err := c.client.ImageService().Get(ctx, image.Name)
		if err != nil || have.Target.Digest != image.Digest {
			return false
		}
	}
	return len(want) > 0
}

// mendContent replaces the damaged files that containerd has of an archive.
func (c containerdImages) mendContent(ctx context.Context, file string) (bool, error) {
	return archives.MendBlobs(ctx, c.store(), file)
}

// dropDamaged removes images that are damaged.
func (c containerdImages) dropDamaged(ctx context.Context) ([]string, error) {
	return archives.DropDamaged(ctx, c.store())
}

// mendLayers replaces the damaged files of unpacked images.
func (c containerdImages) mendLayers(ctx context.Context, all []archives.Image) (bool, error) {
	return archives.MendLayers(ctx, c.store(), all, c.snapshotter)
}

func (c containerdImages) store() archives.Store {
	return archives.Store{Client: c.client, Root: c.root, Own: c.root}
}
