package oci

import (
	"bytes"
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// TestArchive: each kind of reader finds a layer that it can read, and both have the same content.
func TestArchive(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(dir, name)
	}
	image := Archive{
		Names: []string{"coracle:v1", "coracle:latest"}, Arch: "amd64", Config: []byte(`{"config":{"Entrypoint":["/x"]}}`),
		Layers: []Layer{
			{DiffID: "sha256:aa", File: file("one.zst"), Media: MediaZstd, Docker: file("one.gz")},
			{DiffID: "sha256:bb", File: file("two.gz"), Media: MediaGzip},
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
	decode := func(name string, into any) {
		t.Helper()
		if err := json.Unmarshal(files[name], into); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	at := func(d descriptor) string { return path.Join("blobs", strings.Replace(d.Digest, ":", "/", 1)) }

	var index struct{ Manifests []descriptor }
	decode("index.json", &index)
	if got := index.Manifests[0].Annotations["io.containerd.image.name"]; got != "docker.io/library/coracle:v1" {
		t.Errorf("containerd calls it %q", got)
	}
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	decode(at(index.Manifests[0]), &manifest)
	var docker []struct {
		Config           string
		RepoTags, Layers []string
	}
	decode("manifest.json", &docker)
	if docker[0].Config != at(manifest.Config) || len(docker[0].RepoTags) != 2 {
		t.Errorf("docker load finds %+v", docker)
	}
	for i, want := range []struct{ oci, docker string }{{"one.zst", "one.gz"}, {"two.gz", "two.gz"}} {
		if got := string(files[at(manifest.Layers[i])]); got != want.oci {
			t.Errorf("layer %d is %s, not %s", i, got, want.oci)
		}
		if got := string(files[docker[0].Layers[i]]); got != want.docker {
			t.Errorf("docker's layer %d is %s, not %s", i, got, want.docker)
		}
	}
	var config struct {
		Config struct{ Entrypoint []string }
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	decode(at(manifest.Config), &config)
	if len(config.RootFS.DiffIDs) != 2 || config.Config.Entrypoint[0] != "/x" {
		t.Errorf("the configuration is %+v", config)
	}
}

func TestCanonical(t *testing.T) {
	for name, want := range map[string]string{
		"coracle:v1":             "docker.io/library/coracle:v1",
		"some/coracle:v1":        "docker.io/some/coracle:v1",
		"ghcr.io/some/coracle:1": "ghcr.io/some/coracle:1",
		"localhost/coracle:1":    "localhost/coracle:1",
		"localhost:5000/c:1":     "localhost:5000/c:1",
	} {
		if got := canonical(name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}
