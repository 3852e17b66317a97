// Package images imports image archives into containerd, and lists, exports, shares and removes images. Imported images are pinned:
// after the kubelet's garbage collection they could not be pulled from a registry.
package images

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/pkg/archive/compression"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
)

// Namespace is containerd's namespace for Kubernetes.
const Namespace = "k8s.io"

// The labels of images that the CRI plugin manages, and of images that the kubelet must not remove.
const (
	managedLabel, managedValue = "io.cri-containerd.image", "managed"
	pinnedLabel, pinnedValue   = "io.cri-containerd.pinned", "pinned"
)

// Options change how an archive is imported. The zero value is usable.
type Options struct {
	// Snapshotter is where the layers are unpacked, so that the first container starts fast. "" leaves that to its start.
	Snapshotter string
	// Progress is called often with the number of bytes read of the file. It may be nil.
	Progress func(read, total int64)
}

// Image is the name of an image, and its content.
type Image struct {
	Name   string        `json:"name"`
	Digest digest.Digest `json:"digest"`
}

// Import imports the images of one file into Kubernetes' namespace and pins them. The file is a Docker or OCI archive, plain or
// compressed with gzip or zstd, or a directory in OCI layout. Existing images are pinned, and get the names from the archive. Each image
// also gets the name name@digest. Import returns the names without those by digest.
func Import(ctx context.Context, client *containerd.Client, path string, opts Options) ([]Image, error) {
	imported, err := importFile(namespaces.WithNamespace(ctx, Namespace), client, path, opts)
	if err != nil {
		return nil, fmt.Errorf("importing %s: %w", path, err)
	}
	return imported, nil
}

// ImportFrom is Import for a stream. name is its name in errors.
func ImportFrom(ctx context.Context, client *containerd.Client, name string, archive io.Reader, opts Options) ([]Image, error) {
	imported, err := importStream(namespaces.WithNamespace(ctx, Namespace), client, refName{stem: "image"}, archive, opts)
	if err != nil {
		return nil, fmt.Errorf("importing %s: %w", name, err)
	}
	return imported, nil
}

func importFile(ctx context.Context, client *containerd.Client, path string, opts Options) ([]Image, error) {
	file, err := open(path, opts.Progress)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return importStream(ctx, client, refName{stem: stem(path)}, file, opts)
}

func importStream(ctx context.Context, client *containerd.Client, name refName, archive io.Reader, opts Options) ([]Image, error) {
	stream, err := compression.DecompressStream(archive)
	if err != nil {
		return nil, fmt.Errorf("decompressing: %w", err)
	}
	defer stream.Close()

	// The lease protects content that no image refers to yet from the garbage collector.
	ctx, done, err := client.WithLease(ctx)
	if err != nil {
		return nil, err
	}
	defer done(context.WithoutCancel(ctx))
	labels := map[string]string{managedLabel: managedValue, pinnedLabel: pinnedValue}
	found, err := client.Import(ctx, stream,
		containerd.WithImageLabels(labels),
		containerd.WithImageRefTranslator(name.translate),
		containerd.WithDigestRef(name.byDigest),
		containerd.WithSkipDigestRef(func(ref string) bool { return ref != "" }), // only images without a name
		containerd.WithSkipMissing(),
	)
	if err != nil {
		return nil, explain(err)
	}
	// Padding may follow the archive. It is read so that progress reaches the end.
	_, _ = io.Copy(io.Discard, stream)
	if len(found) == 0 {
		return nil, errors.New("it holds no image")
	}
	var out []Image
	for _, img := range found {
		if err := nameByDigest(ctx, client, img, labels); err != nil {
			return nil, err
		}
		if opts.Snapshotter != "" {
			if err := unpack(ctx, client, img, opts.Snapshotter); err != nil {
				return nil, err
			}
		}
		out = append(out, Image{Name: img.Name, Digest: img.Target.Digest})
	}
	return out, nil
}

// nameByDigest adds the name name@digest to a tagged image, as a pull does.
func nameByDigest(ctx context.Context, client *containerd.Client, img images.Image, labels map[string]string) error {
	ref, err := reference.ParseDockerRef(img.Name)
	if err != nil {
		return nil // not a reference, so it is never used by digest
	}
	canonical, err := reference.WithDigest(reference.TrimNamed(ref), img.Target.Digest)
	if err != nil {
		return err
	}
	if canonical.String() == img.Name {
		return nil
	}
	byDigest := images.Image{Name: canonical.String(), Target: img.Target, Labels: labels}
	_, err = client.ImageService().Update(ctx, byDigest, "target", "labels")
	if errdefs.IsNotFound(err) {
		_, err = client.ImageService().Create(ctx, byDigest)
	}
	if err != nil && !errdefs.IsAlreadyExists(err) {
		return fmt.Errorf("naming %s: %w", canonical, err)
	}
	return nil
}

func unpack(ctx context.Context, client *containerd.Client, img images.Image, snapshotter string) error {
	if err := containerd.NewImage(client, img).Unpack(ctx, snapshotter); err != nil {
		return fmt.Errorf("unpacking %s: %w", img.Name, err)
	}
	return nil
}

// explain replaces an error of containerd by one that a user understands.
func explain(err error) error {
	switch {
	case errors.Is(err, tar.ErrHeader), strings.Contains(err.Error(), "unrecognized image format"):
		return errors.New("it is neither a docker nor an OCI archive (made with: docker save, podman save, skopeo copy, ctr images export)")
	case errors.Is(err, images.ErrEmptyWalk):
		return errors.New("none of its images is for this machine's platform")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the file is cut short")
	}
	return err
}
