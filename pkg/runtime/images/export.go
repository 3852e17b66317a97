package images

import (
	"context"
	"fmt"
	"io"
	"strings"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/images/archive"
	"github.com/containerd/containerd/v2/pkg/archive/compression"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/distribution/reference"
)

// Find returns images by name: with or without docker.io and a tag, or with a digest. The error has the name of a missing image.
func Find(ctx context.Context, client *containerd.Client, names []string) ([]images.Image, error) {
	ctx = namespaces.WithNamespace(ctx, Namespace)
	var found []images.Image
	for _, name := range names {
		full := name
		if ref, err := reference.ParseDockerRef(name); err == nil {
			full = ref.String()
		}
		img, err := client.ImageService().Get(ctx, full)
		if errdefs.IsNotFound(err) {
			return nil, fmt.Errorf("there is no image %s here; coracle images list shows all", name)
		}
		if err != nil {
			return nil, fmt.Errorf("looking for image %s: %w", name, err)
		}
		found = append(found, img)
	}
	return found, nil
}

// Export writes images to an archive for Import, docker load and others: in OCI layout, with Docker's manifest. The archive has only the
// content for this machine's platform.
func Export(ctx context.Context, client *containerd.Client, all []images.Image, to io.Writer) error {
	ctx = namespaces.WithNamespace(ctx, Namespace)
	platform := platforms.DefaultStrict()
	for _, img := range all {
		_, _, _, missing, err := images.Check(ctx, client.ContentStore(), img.Target, platform)
		if err != nil {
			return fmt.Errorf("looking at image %s: %w", img.Name, err)
		}
		if len(missing) > 0 {
			return fmt.Errorf("image %s is incomplete, for example %s is missing: pull it again", img.Name, missing[0].Digest)
		}
	}
	err := client.Export(ctx, to, archive.WithImages(all), archive.WithPlatform(platform), archive.WithSkipNonDistributableBlobs())
	if err != nil {
		return fmt.Errorf("exporting images: %w", err)
	}
	return nil
}

// Compress returns a writer that compresses by the extension of a file's name: .gz, .tgz and .zst; others are not compressed. The caller
// closes it; that does not close to.
func Compress(file string, to io.Writer) (io.WriteCloser, error) {
	kind := compression.Uncompressed
	switch {
	case strings.HasSuffix(file, ".gz"), strings.HasSuffix(file, ".tgz"):
		kind = compression.Gzip
	case strings.HasSuffix(file, ".zst"):
		kind = compression.Zstd
	}
	return compression.CompressStream(to, kind)
}
