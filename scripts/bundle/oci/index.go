package oci

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
)

// WriteIndex writes one OCI layout of archives that Archive.Write has made of an image, each for another architecture. It is for registries: who pulls
// from one gets the image for their machine. Layers that only `docker load` needs are left out.
func WriteIndex(w io.Writer, archives []string) error {
	var platforms []descriptor
	var names map[string]string
	blobs := map[string]source{}
	for _, archive := range archives {
		manifest, files, err := open(archive)
		if err != nil {
			return fmt.Errorf("reading %s: %w", archive, err)
		}
		if slices.ContainsFunc(platforms, func(d descriptor) bool { return maps.Equal(d.Platform, manifest.Platform) }) {
			return fmt.Errorf("%s is a second image for %s", archive, manifest.Platform["architecture"])
		}
		names, manifest.Annotations = manifest.Annotations, nil
		platforms = append(platforms, manifest)
		maps.Copy(blobs, files)
	}
	content := encode(map[string]any{"schemaVersion": 2, "mediaType": mediaIndex, "manifests": platforms})
	sum := sha256.Sum256(content)
	index := descriptor{MediaType: mediaIndex, Digest: "sha256:" + hex.EncodeToString(sum[:]), Size: len(content), Annotations: names}
	all := []source{
		bytesOf("index.json", encode(map[string]any{"schemaVersion": 2, "mediaType": mediaIndex, "manifests": []descriptor{index}})),
		bytesOf("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)),
		bytesOf(blobName(index), content),
	}
	for _, name := range slices.Sorted(maps.Keys(blobs)) {
		all = append(all, blobs[name])
	}
	return writeSources(w, all)
}

func bytesOf(name string, data []byte) source {
	return source{name: name, data: data, size: int64(len(data))}
}

// open returns an archive's only manifest, and the blobs that it needs.
func open(archive string) (descriptor, map[string]source, error) {
	f, err := os.Open(archive)
	if err != nil {
		return descriptor{}, nil, err
	}
	defer f.Close()
	files := map[string][]byte{}
	for t := tar.NewReader(f); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return descriptor{}, nil, err
		}
		var data bytes.Buffer
		if _, err := io.Copy(&data, t); err != nil {
			return descriptor{}, nil, err
		}
		files[h.Name] = data.Bytes()
	}
	var index struct{ Manifests []descriptor }
	if err := json.Unmarshal(files["index.json"], &index); err != nil {
		return descriptor{}, nil, fmt.Errorf("index.json: %w", err)
	}
	if len(index.Manifests) != 1 {
		return descriptor{}, nil, fmt.Errorf("index.json lists %d images", len(index.Manifests))
	}
	only := index.Manifests[0]
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	if err := json.Unmarshal(files[blobName(only)], &manifest); err != nil {
		return descriptor{}, nil, fmt.Errorf("the manifest: %w", err)
	}
	needed := map[string]source{}
	for _, d := range append(manifest.Layers, manifest.Config, only) {
		data, ok := files[blobName(d)]
		if !ok {
			return descriptor{}, nil, fmt.Errorf("%s is missing", blobName(d))
		}
		needed[blobName(d)] = bytesOf(blobName(d), data)
	}
	return only, needed, nil
}
