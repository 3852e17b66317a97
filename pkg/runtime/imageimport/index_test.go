package imageimport

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	archives "github.com/coracle-dev/coracle/pkg/runtime/images"
)

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestStamp(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "one", "pause.tar"), "same")
	write(t, filepath.Join(dir, "two", "pause.tar"), "same")
	zero := time.Unix(0, 0)
	for _, version := range []string{"one", "two"} {
		if err := os.Chtimes(filepath.Join(dir, version, "pause.tar"), zero, zero); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(dir, "bin")
	point := func(version string) stamp {
		os.Remove(link)
		if err := os.Symlink(version, link); err != nil {
			t.Fatal(err)
		}
		s, err := stampOf(filepath.Join(link, "pause.tar"))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if one, two := point("one"), point("two"); one == two {
		t.Error("a new payload looks like the old one")
	}
	if a, b := point("one"), point("one"); a != b {
		t.Error("the same file looks different")
	}
	layout := filepath.Join(dir, "layout")
	write(t, filepath.Join(layout, "index.json"), "{}")
	before, err := stampOf(layout)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(layout, "index.json"), `{"manifests":[]}`)
	if after, err := stampOf(layout); err != nil || after == before {
		t.Errorf("a changed layout looks the same (%v)", err)
	}
	if _, err := stampOf(filepath.Join(dir, "missing")); err == nil {
		t.Error("a missing file has a stamp")
	}
}

func TestIndex(t *testing.T) {
	dir := t.TempDir()
	file, gone := filepath.Join(dir, "a.tar"), filepath.Join(dir, "gone.tar")
	write(t, file, "x")
	s, err := stampOf(file)
	if err != nil {
		t.Fatal(err)
	}
	image := []archives.Image{{Name: "docker.io/library/a:1", Digest: "sha256:00"}}
	w := newWork(Images{Index: filepath.Join(dir, "state", "images.json")}, nil, nil)
	w.index[file], w.index[gone] = imported{stamp: s, Images: image}, imported{Images: image}
	if err := w.save(); err != nil {
		t.Fatal(err)
	}
	got := readIndex(w.Index)
	if len(got) != 1 || got[file].stamp != s || got[file].Images[0] != image[0] {
		t.Errorf("read back %+v", got)
	}
	write(t, w.Index, "{broken")
	if got := readIndex(w.Index); len(got) != 0 {
		t.Errorf("a broken index is read as %v", got)
	}
	if got := readIndex(filepath.Join(dir, "none")); len(got) != 0 {
		t.Errorf("a missing index is read as %v", got)
	}
}

func TestList(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b.tar", "a.tar.zst", ".hidden", "c.tar.part", "d.tmp"} {
		write(t, filepath.Join(dir, name), "")
	}
	if got := list(dir); len(got) != 2 || filepath.Base(got[0]) != "a.tar.zst" || filepath.Base(got[1]) != "b.tar" {
		t.Errorf("got %v", got)
	}
	if got := list(filepath.Join(dir, "none")); got != nil {
		t.Errorf("a missing directory has %v", got)
	}
}
