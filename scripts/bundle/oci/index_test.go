package oci

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestIndex: one name leads to the image of each architecture, complete, and nothing else is in the archive.
func TestIndex(t *testing.T) {
	dir := t.TempDir()
	archive := func(arch string) string {
		var layers []Layer
		for _, content := range []string{"common", arch} {
			l := Layer{DiffID: "sha256:aa", File: filepath.Join(dir, content+".zst"), Media: MediaZstd, Docker: filepath.Join(dir, content+".gz")}
			for _, file := range []string{l.File, l.Docker} {
				if err := os.WriteFile(file, []byte(filepath.Base(file)), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			layers = append(layers, l)
		}
		f, err := os.Create(filepath.Join(dir, arch+".tar"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := (Archive{Names: []string{"coracle:v1", "coracle:latest"}, Arch: arch, Config: []byte(`{}`), Layers: layers}).Write(f); err != nil {
			t.Fatal(err)
		}
		return f.Name()
	}
	amd64, arm64 := archive("amd64"), archive("arm64")
	var out bytes.Buffer
	if err := WriteIndex(&out, []string{amd64, arm64}); err != nil {
		t.Fatal(err)
	}
	files := read(t, &out)
	type list struct{ Manifests, Layers []descriptor }
	decode := func(name string) (l list) {
		if err := json.Unmarshal(files[name], &l); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return l
	}
	top := decode("index.json").Manifests
	if len(top) != 1 || top[0].Annotations["io.containerd.image.name"] != "docker.io/library/coracle:v1" || top[0].MediaType != mediaIndex {
		t.Fatalf("the archive holds %+v", top)
	}
	for i, platform := range decode(blobName(top[0])).Manifests {
		want := []string{"amd64", "arm64"}[i]
		layers := decode(blobName(platform)).Layers
		if platform.Platform["architecture"] != want || string(files[blobName(layers[0])]) != "common.zst" || string(files[blobName(layers[1])]) != want+".zst" {
			t.Errorf("for %s there are %+v with %+v", want, platform, layers)
		}
	}
	for name, data := range files {
		if strings.HasSuffix(string(data), ".gz") {
			t.Errorf("%s is a layer for docker load", name)
		}
	}
	if err := WriteIndex(&out, []string{amd64, amd64}); err == nil || !strings.Contains(err.Error(), "second image for amd64") {
		t.Errorf("two images for the same architecture: %v", err)
	}
}
