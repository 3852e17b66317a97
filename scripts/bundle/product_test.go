package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestProductImageIsReproducible makes the image of a small product twice, in different places.
func TestProductImageIsReproducible(t *testing.T) {
	if _, err := exec.LookPath("zstd"); err != nil {
		t.Skip("no zstd on this machine")
	}
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	build := func() []byte {
		dir := t.TempDir()
		at := func(name string) string { return filepath.Join(dir, name) }
		for name, text := range map[string]string{
			"payload/versions.json": "[]", "payload/licenses.txt": "free", "payload/coracle-core": "core",
			"root/usr/bin/coracle": "front", "root/etc/passwd": "root", "config.json": `{"config": {"Entrypoint": ["/usr/bin/coracle"]}}`,
		} {
			if err := os.MkdirAll(filepath.Dir(at(name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(at(name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := pack(at("payload"), "3", at("payload.tar.zst")); err != nil {
			t.Fatal(err)
		}
		if err := productImage("amd64", "v1+x", at("payload.tar.zst"), at("root"), at("config.json"), at("image.tar")); err != nil {
			t.Fatal(err)
		}
		return read(t, at("image.tar"))
	}
	one := build()
	if two := build(); !bytes.Equal(one, two) {
		t.Error("the same files gave different bytes")
	}
	for _, want := range []string{`"coracle:v1-x"`, `"created":"2023-11-14T22:13:20Z"`, "tar+zstd", "tar+gzip"} {
		if !bytes.Contains(one, []byte(want)) {
			t.Errorf("the image says nothing of %s", want)
		}
	}
}

// TestList: the list has the modes of the image's layer, whatever the modes of the files here.
func TestList(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "runc"), []byte("program"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("runc", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, ".files.json")
	for range 2 { // the list does not contain itself
		if err := list(dir, out); err != nil {
			t.Fatal(err)
		}
	}
	const want = `{
 "link": {
  "size": 4,
  "mode": 134218239
 },
 "runc": {
  "size": 7,
  "mode": 493
 }
}`
	if got := string(read(t, out)); got != want {
		t.Errorf("got %s", got)
	}
}
