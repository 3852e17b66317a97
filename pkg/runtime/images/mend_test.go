package images

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestMendTree: what differs is replaced, and only that.
func TestMendTree(t *testing.T) {
	files := map[string]string{"same": "text", "zeroed": "text", "short": "text", "dir/gone": "text", "skipped": "text"}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for name, text := range files {
		w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(text))})
		w.Write([]byte(text))
	}
	w.Close()
	packed := archive.Bytes()
	dir := t.TempDir()
	place := func(name string) string {
		if name == "skipped" {
			return ""
		}
		return filepath.Join(dir, name)
	}
	for name, text := range map[string]string{"same": "text", "zeroed": "\x00\x00\x00\x00", "short": "", "skipped": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	same, _ := os.Stat(filepath.Join(dir, "same"))
	damaged := errors.New("the archive is damaged")
	if mended, err := mendTree(bytes.NewReader(packed), place, func(string, []byte) error { return damaged }); mended || !errors.Is(err, damaged) {
		t.Errorf("a damaged archive: %v, %v", mended, err)
	}
	for round, want := range []bool{true, false} {
		if mended, err := mendTree(bytes.NewReader(packed), place, nil); mended != want || err != nil {
			t.Errorf("round %d: %v, %v", round, mended, err)
		}
	}
	for name := range files {
		want := files[name]
		if name == "skipped" {
			want = ""
		}
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s holds %q (%v)", name, got, err)
		}
	}
	info, err := os.Stat(filepath.Join(dir, "zeroed"))
	if err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("its mode is %v (%v)", info.Mode(), err)
	}
	if now, err := os.Stat(filepath.Join(dir, "same")); err != nil || !os.SameFile(same, now) {
		t.Error("a file without damage was replaced")
	}
}
