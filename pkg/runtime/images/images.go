// Package images brings image archives into containerd and lists what is there. Imported images are pinned: no
// registry could give them back after the kubelet's garbage collection.
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

// Namespace is the containerd namespace of everything that belongs to Kubernetes.
const Namespace = "k8s.io"

// The labels by which the CRI plugin knows its images and what the kubelet must not collect.
const (
	managedLabel, managedValue = "io.cri-containerd.image", "managed"
	pinnedLabel, pinnedValue   = "io.cri-containerd.pinned", "pinned"
)

// Options change how an archive is imported. The zero value is usable.
type Options struct {
	// Snapshotter unpacks the layers too, so that the first container starts at once. Empty leaves it to that start.
	Snapshotter string
	// Progress is told how many of the file's bytes have been read, often. Nil is nobody.
	Progress func(read, total int64)
}

// Image is one imported name.
type Image struct {
	Name   string        `json:"name"`
	Digest digest.Digest `json:"digest"`
}

// Import brings the images of one file into Kubernetes' namespace and pins them: a docker or OCI archive, plain or
// compressed with gzip or zstd, or a directory in OCI layout. Images that are there already are pinned and given
// the names from the archive. Each image gets its names and, for references by digest, name@digest.
// It returns the names that people know, without those by digest.
func Import(ctx context.Context, client *containerd.Client, path string, opts Options) ([]Image, error) {
	imported, err := importFile(namespaces.WithNamespace(ctx, Namespace), client, path, opts)
	if err != nil {
		return nil, fmt.Errorf("importing %s: %w", path, err)
	}
	return imported, nil
}

// ImportFrom is Import for an archive that is read from elsewhere. The name stands for it in errors.
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

	// The lease keeps the garbage collector off what has no image yet.
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
		containerd.WithSkipDigestRef(func(ref string) bool { return ref != "" }), // only what has no name
		containerd.WithSkipMissing(),
	)
	if err != nil {
		return nil, explain(err)
	}
	// Whatever follows the archive in the stream is padding; reading it lets progress arrive at the end.
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

// nameByDigest gives a tagged image its name@digest too, as a pull would.
func nameByDigest(ctx context.Context, client *containerd.Client, img images.Image, labels map[string]string) error {
	ref, err := reference.ParseDockerRef(img.Name)
	if err != nil {
		return nil // a name that only the archive's maker understands: nobody will ask for it by digest
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

// explain adds what a person needs to containerd's own words.
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
