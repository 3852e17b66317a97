package oci

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
)

// Media types of compressed layers.
const (
	MediaGzip = mediaLayer + "+gzip"
	MediaZstd = mediaLayer + "+zstd"
)

// Layer is a layer of an Archive, compressed in files.
type Layer struct {
	DiffID string // "sha256:" and the sum of the layer when it is not compressed
	File   string
	Media  string
	// Docker is the same layer for `docker load`, which reads no zstd before version 23; "" if it can read File.
	Docker string
}

// Archive is an image with layers in files, in a format for all tools: an OCI layout that also has the files for
// `docker load`.
type Archive struct {
	Names  []string // references; the first is the one in the OCI layout
	Config []byte   // the image's configuration without its layers, JSON
	Arch   string   // as GOARCH
	Layers []Layer
}

// source is a file of the archive, in memory or on the disk.
type source struct {
	name string
	data []byte
	file string
	size int64
}

// Write writes the archive.
func (a Archive) Write(w io.Writer) error {
	var files []source
	var layers []descriptor
	var forDocker, diffs []string
	seen := map[string]bool{}
	for _, l := range a.Layers {
		d, err := describe(l.File, l.Media)
		if err != nil {
			return err
		}
		layers, diffs = append(layers, d), append(diffs, l.DiffID)
		blobs := []source{{name: blobName(d), file: l.File, size: int64(d.Size)}}
		if l.Docker != "" {
			if d, err = describe(l.Docker, MediaGzip); err != nil {
				return err
			}
			blobs = append(blobs, source{name: blobName(d), file: l.Docker, size: int64(d.Size)})
		}
		forDocker = append(forDocker, blobName(d))
		for _, b := range blobs {
			if !seen[b.name] {
				seen[b.name] = true
				files = append(files, b)
			}
		}
	}
	head, err := a.head(layers, forDocker, diffs)
	if err != nil {
		return err
	}
	return writeSources(w, append(head, files...))
}

// head returns the files that are not layers.
func (a Archive) head(layers []descriptor, forDocker, diffs []string) ([]source, error) {
	var config map[string]any
	if err := json.Unmarshal(a.Config, &config); err != nil {
		return nil, fmt.Errorf("reading the image's configuration: %w", err)
	}
	config["rootfs"] = map[string]any{"type": "layers", "diff_ids": diffs}
	var files []source
	add := func(name string, data []byte) {
		files = append(files, source{name: name, data: data, size: int64(len(data))})
	}
	blob := func(media string, data []byte) descriptor {
		sum := sha256.Sum256(data)
		d := descriptor{MediaType: media, Digest: "sha256:" + hex.EncodeToString(sum[:]), Size: len(data)}
		add(blobName(d), data)
		return d
	}
	configDesc := blob(mediaConfig, encode(config))
	manifest := blob(mediaManifest, encode(map[string]any{
		"schemaVersion": 2, "mediaType": mediaManifest, "config": configDesc, "layers": layers,
	}))
	manifest.Platform = map[string]string{"architecture": a.Arch, "os": "linux"}
	manifest.Annotations = map[string]string{
		"io.containerd.image.name":          canonical(a.Names[0]),
		"org.opencontainers.image.ref.name": a.Names[0][strings.LastIndexByte(a.Names[0], ':')+1:],
	}
	add("index.json", encode(map[string]any{"schemaVersion": 2, "mediaType": mediaIndex, "manifests": []descriptor{manifest}}))
	add("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`))
	add("manifest.json", encode([]any{map[string]any{"Config": blobName(configDesc), "RepoTags": a.Names, "Layers": forDocker}}))
	return files, nil
}

// canonical is a reference in containerd's form: a name without a registry is one of Docker Hub.
func canonical(name string) string {
	first, _, slash := strings.Cut(name, "/")
	switch {
	case !slash:
		return "docker.io/library/" + name
	case !strings.ContainsAny(first, ".:") && first != "localhost":
		return "docker.io/" + name
	}
	return name
}

func blobName(d descriptor) string {
	return path.Join("blobs", strings.Replace(d.Digest, ":", "/", 1))
}

// describe returns the descriptor of a file.
func describe(file, media string) (descriptor, error) {
	f, err := os.Open(file)
	if err != nil {
		return descriptor{}, err
	}
	defer f.Close()
	sum := sha256.New()
	n, err := io.Copy(sum, f)
	if err != nil {
		return descriptor{}, fmt.Errorf("reading a layer: %w", err)
	}
	return descriptor{MediaType: media, Digest: "sha256:" + hex.EncodeToString(sum.Sum(nil)), Size: int(n)}, nil
}

func writeSources(w io.Writer, files []source) error {
	t := tar.NewWriter(w)
	for _, dir := range []string{"blobs/", "blobs/sha256/"} {
		if err := t.WriteHeader(&tar.Header{Name: dir, Typeflag: tar.TypeDir, Mode: 0o755, Format: tar.FormatUSTAR}); err != nil {
			return err
		}
	}
	for _, f := range files {
		if err := t.WriteHeader(&tar.Header{Name: f.name, Mode: 0o644, Size: f.size, Format: tar.FormatUSTAR}); err != nil {
			return err
		}
		if err := f.copy(t); err != nil {
			return fmt.Errorf("writing %s: %w", f.name, err)
		}
	}
	return t.Close()
}

func (s source) copy(w io.Writer) error {
	if s.file == "" {
		_, err := w.Write(s.data)
		return err
	}
	f, err := os.Open(s.file)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}
