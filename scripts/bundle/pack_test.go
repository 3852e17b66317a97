package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestPackIsReproducible: times, modes except the executable bit, and the order of creating files make no difference.
func TestPackIsReproducible(t *testing.T) {
	if _, err := exec.LookPath("zstd"); err != nil {
		t.Skip("no zstd on this machine")
	}
	names := []string{"versions.json", "licenses.txt", "runc", "a/b"}
	archive := func(order []string, mode os.FileMode, age time.Duration) (data, stamp []byte) {
		dir := t.TempDir()
		for _, name := range order {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(strings.Repeat(name, 1000)), mode); err != nil {
				t.Fatal(err)
			}
			then := time.Now().Add(-age)
			if err := os.Chtimes(path, then, then); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink("../runc", filepath.Join(dir, "a", "link")); err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(t.TempDir(), "payload.tar.zst")
		if err := pack(dir, "3", out); err != nil {
			t.Fatal(err)
		}
		return read(t, out), read(t, out+".stamp")
	}
	one, stampOne := archive(names, 0o644, 0)
	two, stampTwo := archive([]string{names[3], names[2], names[1], names[0]}, 0o600, 50*time.Hour)
	if !bytes.Equal(one, two) || !bytes.Equal(stampOne, stampTwo) {
		t.Error("the same files gave different bytes")
	}
	three, _ := archive(names, 0o755, 0)
	if bytes.Equal(one, three) {
		t.Error("executables are not told from other files")
	}
}

func TestAttach(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"front": "front", "payload": "payload"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out := filepath.Join(dir, "coracle")
	if err := attach(filepath.Join(dir, "front"), filepath.Join(dir, "payload"), "19", out); err != nil {
		t.Fatal(err)
	}
	if got := string(read(t, out)); got != "frontpayload" {
		t.Errorf("got %q", got)
	}
	if info, err := os.Stat(out); err != nil || info.Mode().Perm()&0o111 == 0 {
		t.Errorf("not executable: %v %v", info.Mode(), err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
