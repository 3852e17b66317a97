package registries

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Image is the content of an archive in OCI layout: its blobs, and the descriptor of the image.
type Image struct {
	blobs  map[digest.Digest][]byte
	target ocispec.Descriptor
}

// ReadImage reads the first image of an archive in OCI layout.
func ReadImage(t testing.TB, archive string) Image {
	t.Helper()
	file, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	img := Image{blobs: map[digest.Digest][]byte{}}
	var index ocispec.Index
	for r := tar.NewReader(file); ; {
		header, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("%s: %v", archive, err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatalf("%s: %v", archive, err)
		}
		if sum, ok := strings.CutPrefix(header.Name, "blobs/sha256/"); ok && sum != "" {
			img.blobs[digest.NewDigestFromEncoded(digest.SHA256, sum)] = data
		}
		if header.Name == "index.json" {
			if err := json.Unmarshal(data, &index); err != nil {
				t.Fatalf("%s: %v", archive, err)
			}
		}
	}
	if len(index.Manifests) == 0 {
		t.Fatalf("%s is no archive in OCI layout", archive)
	}
	img.target = index.Manifests[0]
	return img
}

// Name is the image's name in the archive, with the registry.
func (i Image) Name() string { return i.target.Annotations[images.AnnotationImageName] }

// Digest is the image's digest.
func (i Image) Digest() string { return i.target.Digest.String() }

// With returns the image with one more layer, which contains a file. No node has this image completely.
func (i Image) With(t testing.TB, file, text string) Image {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	must(w.WriteHeader(&tar.Header{Name: file, Mode: 0o644, Size: int64(len(text))}))
	_, err := io.WriteString(w, text)
	must(err)
	must(w.Close())

	out := Image{blobs: maps.Clone(i.blobs)}
	add := func(mediaType string, data []byte) ocispec.Descriptor {
		desc := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
		out.blobs[desc.Digest] = data
		return desc
	}
	var manifest ocispec.Manifest
	must(json.Unmarshal(i.blobs[i.manifest(t).Digest], &manifest))
	var config ocispec.Image
	must(json.Unmarshal(i.blobs[manifest.Config.Digest], &config))
	top := add(ocispec.MediaTypeImageLayer, layer.Bytes())
	config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, top.Digest)
	config.History = nil
	data, err := json.Marshal(config)
	must(err)
	manifest.Config = add(ocispec.MediaTypeImageConfig, data)
	manifest.Layers = append(manifest.Layers, top)
	data, err = json.Marshal(manifest)
	must(err)
	out.target = add(ocispec.MediaTypeImageManifest, data)
	return out
}

// manifest is the first manifest of an index, or the image's own manifest.
func (i Image) manifest(t testing.TB) ocispec.Descriptor {
	t.Helper()
	desc := i.target
	for desc.MediaType == ocispec.MediaTypeImageIndex {
		var index ocispec.Index
		if err := json.Unmarshal(i.blobs[desc.Digest], &index); err != nil || len(index.Manifests) == 0 {
			t.Fatalf("an index without manifests: %v", err)
		}
		desc = index.Manifests[0]
	}
	return desc
}
