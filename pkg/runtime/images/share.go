package images

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Store is the containerd of one of several hosts on this machine.
type Store struct {
	Client *containerd.Client
	// Root is the path of containerd's directory for this process, Own the path for containerd itself.
	Root, Own string

	ctx context.Context // with a lease of this containerd, while images are shared
}

// contentDir holds a containerd's blobs, below its root.
const contentDir = "io.containerd.content.v1.content"

// blob is containerd's file of a blob.
func (s Store) blob(sum digest.Digest) string {
	return filepath.Join(s.Root, contentDir, "blobs", sum.Algorithm().String(), sum.Encoded())
}

// Share copies images from one containerd to another on the same machine. On one file system, blobs and the files of unpacked layers are
// hard links, which is safe because containerd never changes them in place. Otherwise blobs are copied, and layers are unpacked.
func Share(ctx context.Context, from, to Store, names []Image, snapshotter string) error {
	ctx = namespaces.WithNamespace(ctx, Namespace)
	// The leases protect content that no image refers to yet from the garbage collectors. Each lease belongs to one containerd.
	looking, done, err := from.Client.WithLease(ctx)
	if err != nil {
		return err
	}
	defer done(context.WithoutCancel(looking))
	making, done, err := to.Client.WithLease(ctx)
	if err != nil {
		return err
	}
	defer done(context.WithoutCancel(making))
	from.ctx, to.ctx = looking, making
	for _, name := range names {
		if err := shareImage(making, from, to, name.Name, snapshotter); err != nil {
			return fmt.Errorf("sharing %s: %w", name.Name, err)
		}
	}
	return nil
}

func shareImage(ctx context.Context, from, to Store, name, snapshotter string) error {
	img, err := from.Client.ImageService().Get(ctx, name)
	if err != nil {
		return err
	}
	share := images.HandlerFunc(func(ctx context.Context, desc ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		if err := shareBlob(ctx, from, to, desc); err != nil {
			return nil, err
		}
		return images.Children(ctx, from.Client.ContentStore(), desc)
	})
	// The content for other platforms may be missing.
	handler := images.LimitManifests(images.FilterPlatforms(present(share), platforms.Default()), platforms.Default(), 1)
	if err := images.Walk(ctx, handler, img.Target); err != nil {
		return err
	}
	if snapshotter != "" {
		if err := shareLayers(ctx, from, to, img, snapshotter); err != nil {
			return err
		}
	}
	_, err = to.Client.ImageService().Update(ctx, images.Image{Name: img.Name, Target: img.Target, Labels: img.Labels}, "target", "labels")
	if errdefs.IsNotFound(err) {
		_, err = to.Client.ImageService().Create(ctx, images.Image{Name: img.Name, Target: img.Target, Labels: img.Labels})
	}
	if err != nil && !errdefs.IsAlreadyExists(err) {
		return fmt.Errorf("naming it: %w", err)
	}
	return nameByDigest(ctx, to.Client, img, img.Labels)
}

// present is a handler that skips missing content.
func present(next images.Handler) images.HandlerFunc {
	return func(ctx context.Context, desc ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		children, err := next.Handle(ctx, desc)
		if errdefs.IsNotFound(err) {
			return nil, images.ErrSkipDesc
		}
		return children, err
	}
}

// shareBlob copies a blob with its labels, which have its references to other blobs.
func shareBlob(ctx context.Context, from, to Store, desc ocispec.Descriptor) error {
	store := from.Client.ContentStore()
	info, err := store.Info(ctx, desc.Digest)
	if err != nil {
		return err
	}
	if _, err := to.Client.ContentStore().Info(ctx, desc.Digest); err == nil {
		return nil
	}
	// containerd uses an existing file as it is. Without one, WriteBlob writes it.
	if err := link(from.blob(desc.Digest), to.blob(desc.Digest)); err != nil && !errors.Is(err, errCopy) {
		return err
	}
	blobReader, err := store.ReaderAt(ctx, desc)
	if err != nil {
		return err
	}
	defer blobReader.Close()
	return content.WriteBlob(ctx, to.Client.ContentStore(), "share-"+desc.Digest.String(), content.NewReader(blobReader),
		ocispec.Descriptor{Digest: desc.Digest, Size: info.Size}, content.WithLabels(info.Labels))
}

// errCopy is the error where hard links are not possible.
var errCopy = errors.New("it must be copied")

// link makes a hard link, and its missing parent directories.
func link(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return fmt.Errorf("%w: %w", errCopy, err)
	}
	err := os.Link(from, to)
	if err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%w: %w", errCopy, err)
	}
	return nil
}
