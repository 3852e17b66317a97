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
	"github.com/opencontainers/image-spec/specs-go"
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

	return i.change(t, func(add func(string, []byte) ocispec.Descriptor, manifest *ocispec.Manifest, config *ocispec.Image) {
		top := add(ocispec.MediaTypeImageLayer, layer.Bytes())
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, top.Digest)
		manifest.Layers = append(manifest.Layers, top)
	})
}

// Running returns the image with another entry point.
func (i Image) Running(t testing.TB, command ...string) Image {
	t.Helper()
	return i.change(t, func(_ func(string, []byte) ocispec.Descriptor, _ *ocispec.Manifest, config *ocispec.Image) {
		config.Config.Entrypoint, config.Config.Cmd = command, nil
	})
}

// change returns the image with another manifest and configuration. add adds a blob.
func (i Image) change(t testing.TB, edit func(add func(mediaType string, data []byte) ocispec.Descriptor, manifest *ocispec.Manifest, config *ocispec.Image)) Image {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
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
	edit(add, &manifest, &config)
	config.History = nil
	data, err := json.Marshal(config)
	must(err)
	manifest.Config = add(ocispec.MediaTypeImageConfig, data)
	data, err = json.Marshal(manifest)
	must(err)
	out.target = add(ocispec.MediaTypeImageManifest, data)
	return out
}

// Write writes the image under a name to an archive in OCI layout.
func (i Image) Write(t testing.TB, name, path string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.Create(path)
	must(err)
	defer file.Close()
	w := tar.NewWriter(file)
	add := func(name string, data []byte) {
		must(w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data))}))
		_, err := w.Write(data)
		must(err)
	}
	target := i.target
	target.Annotations = map[string]string{images.AnnotationImageName: name}
	index, err := json.Marshal(ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{target}})
	must(err)
	add(ocispec.ImageLayoutFile, []byte(`{"imageLayoutVersion":"`+ocispec.ImageLayoutVersion+`"}`))
	add(ocispec.ImageIndexFile, index)
	for sum, data := range i.blobs {
		add("blobs/sha256/"+sum.Encoded(), data)
	}
	must(w.Close())
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
