package oci

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"path"
	"strings"
	"testing"
)

func TestWrite(t *testing.T) {
	image := Image{
		Name: "coracle.test/busybox:1", Arch: "amd64", Cmd: []string{"sh"}, Env: []string{"A=b"},
		Files: []File{
			{Path: "bin", Mode: 0o755, Dir: true},
			{Path: "bin/busybox", Mode: 0o755, Data: []byte("program")},
			{Path: "bin/sh", Link: "busybox"},
		},
	}
	var first, second bytes.Buffer
	for _, b := range []*bytes.Buffer{&first, &second} {
		if err := image.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the same image gave different bytes")
	}

	files := read(t, &first)
	for name, data := range files {
		if sum, ok := strings.CutPrefix(name, "blobs/sha256/"); ok && sum != "" && sum != digest(data) {
			t.Errorf("%s holds %s", name, digest(data))
		}
	}
	blob := func(d descriptor, into any) []byte {
		data := files[path.Join("blobs", strings.Replace(d.Digest, ":", "/", 1))]
		if len(data) != d.Size {
			t.Errorf("%s has %d bytes, not %d", d.Digest, len(data), d.Size)
		}
		if into != nil {
			if err := json.Unmarshal(data, into); err != nil {
				t.Fatal(err)
			}
		}
		return data
	}
	var index struct{ Manifests []descriptor }
	if err := json.Unmarshal(files["index.json"], &index); err != nil {
		t.Fatal(err)
	}
	if got := index.Manifests[0].Annotations["io.containerd.image.name"]; got != image.Name {
		t.Errorf("the image is called %q", got)
	}
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	blob(index.Manifests[0], &manifest)
	var config struct {
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	blob(manifest.Config, &config)
	layer := blob(manifest.Layers[0], nil)
	if config.RootFS.DiffIDs[0] != "sha256:"+digest(layer) {
		t.Errorf("the layer is %s, the config says %s", digest(layer), config.RootFS.DiffIDs[0])
	}
	if got := read(t, bytes.NewReader(layer)); string(got["bin/busybox"]) != "program" || len(got) != 3 {
		t.Errorf("the layer holds %v", got)
	}
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func read(t *testing.T, r io.Reader) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for in := tar.NewReader(r); ; {
		h, err := in.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(in); err != nil {
			t.Fatal(err)
		}
	}
}
