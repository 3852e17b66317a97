package atomicfile

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/coracle-dev/coracle/test/ondisk"
)

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "new", "deep", "file")
	for _, c := range []struct {
		data string
		mode os.FileMode
	}{{"first", 0o600}, {"second, longer", 0o644}, {"", 0o600}} {
		if err := Write(path, []byte(c.data), c.mode); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != c.data {
			t.Errorf("read %q, %v", got, err)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != c.mode {
			t.Errorf("mode %v, want %v", info.Mode(), c.mode)
		}
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Errorf("temporary files are left: %v, %v", left, err)
	}
}

func TestWriteNamesThePath(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Write(filepath.Join(dir, "file", "below"), nil, 0o600); err == nil {
		t.Error("a file was written below a file")
	}
	if err := Write(dir, []byte("x"), 0o600); err == nil {
		t.Error("a directory was replaced by a file")
	}
	if left, _ := os.ReadDir(filepath.Dir(dir)); len(left) != 1 {
		t.Errorf("temporary files are left: %v", left)
	}
}

func TestWriteIfChanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, c := range []struct {
		data string
		mode os.FileMode
		want bool
	}{{"a", 0o600, true}, {"a", 0o600, false}, {"b", 0o600, true}, {"b", 0o644, true}, {"b", 0o644, false}} {
		if wrote, err := WriteIfChanged(path, []byte(c.data), c.mode); err != nil || wrote != c.want {
			t.Errorf("%+v: wrote %v, %v", c, wrote, err)
		}
	}
}

// TestFullDisk: where nothing can be written, what is there already counts as written, and nothing is lost.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	path := filepath.Join(dir, "file")
	if err := Write(path, []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	if err := Write(path, []byte("data"), 0o600); err != nil {
		t.Errorf("the same data: %v", err)
	}
	for name, err := range map[string]error{
		"other data": Write(path, []byte("more"), 0o600), "other mode": Write(path, []byte("data"), 0o644), "other file": Write(path+"2", []byte("data"), 0o600),
	} {
		if !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "data" || len(Unfinished(path)) > 0 {
		t.Errorf("%q, %v, %q", got, err, Unfinished(path))
	}
}

func TestUnfinished(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"file", ".file.", ".file.12", ".file.1x", ".other.12"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := Unfinished(filepath.Join(dir, "file"))
	if len(got) != 1 || got[0] != filepath.Join(dir, ".file.12") {
		t.Errorf("got %q", got)
	}
}

func TestWriteWith(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := WriteWith(path, 0o640, func(f *os.File) error { _, err := f.WriteString("old"); return err }); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	err := WriteWith(path, 0o640, func(f *os.File) error { return errors.Join(f.Truncate(9), broken) })
	if !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	if data, _ := os.ReadFile(path); string(data) != "old" || len(Unfinished(path)) > 0 {
		t.Errorf("holds %q, beside %q", data, Unfinished(path))
	}
}

// TestCopyTree copies a hole, a link and modes.
func TestCopyTree(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "to")
	data := append(make([]byte, 1<<20), "end"...)
	for name, mode := range map[string]fs.FileMode{"wal": 0o600, "program": 0o755, "0.tmp": 0o600} {
		if err := Write(filepath.Join(from, "sub", name), data, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("sub/wal", filepath.Join(from, "link")); err != nil {
		t.Fatal(err)
	}
	if err := CopyTree(from, to, func(path string) bool { return filepath.Ext(path) == ".tmp" }); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]fs.FileMode{"link": 0o600, "sub/wal": 0o600, "sub/program": 0o755} {
		info, err := os.Stat(filepath.Join(to, name))
		if err != nil || info.Mode() != mode {
			t.Fatalf("%s: %v, %v", name, info, err)
		}
		if got, _ := os.ReadFile(filepath.Join(to, name)); !bytes.Equal(got, data) {
			t.Errorf("%s is another", name)
		}
	}
	if _, err := os.Stat(filepath.Join(to, "sub", "0.tmp")); err == nil {
		t.Error("what was to be skipped is copied")
	}
}

// TestOthersLinks: in a directory of another user root reads and copies only what that user may read. The test needs root.
func TestOthersLinks(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it gives files to another user, which needs root")
	}
	dir, secret := t.TempDir(), filepath.Join(t.TempDir(), "secret")
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.WriteFile(secret, []byte("secret"), 0o600), os.Symlink(secret, in("link")), os.Link(secret, in("name")),
		syscall.Mkfifo(in("pipe"), 0o600), os.WriteFile(in("own"), []byte("own"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "link", "pipe", "own"} {
		if err := os.Lchown(in(name), 1234, 1234); err != nil {
			t.Fatal(err)
		}
	}
	for name, refused := range map[string]bool{"link": true, "name": true, "pipe": false, "own": false} {
		f, err := Open(in(name))
		if (err != nil) != refused {
			t.Errorf("%s: %v", name, err)
		}
		f.Close()
	}
	to := filepath.Join(t.TempDir(), "to")
	if err := CopyTree(dir, to, func(path string) bool { return filepath.Base(path) == "name" }); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(to, "link")); err == nil {
		t.Error("root has made a link of the user's its own")
	}
}

func TestJSON(t *testing.T) {
	path := filepath.Join(t.TempDir(), "open", "f.json")
	var got map[string]int
	if found, err := ReadJSON(path, &got); found || err != nil {
		t.Errorf("a missing file: %v, %v", found, err)
	}
	if err := WriteJSON(path, map[string]int{"a": 1}, 0o644); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := WriteJSON(path, map[string]int{"a": 1}, 0o644); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
		t.Errorf("it is written although it has this content (%v)", err)
	}
	if found, err := ReadJSON(path, &got); !found || err != nil || got["a"] != 1 {
		t.Errorf("read back: %v, %v, %v", found, err, got)
	}
	if dir, err := os.Stat(filepath.Dir(path)); err != nil || dir.Mode().Perm() != 0o755 {
		t.Errorf("the directory of a file for everyone: %v, %v", dir.Mode(), err)
	}
	if err := os.WriteFile(path, []byte("{broken"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadJSON(path, &got); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a damaged file: %v", err)
	}
}

// TestOnDisk: a file is on disk when it is written.
func TestOnDisk(t *testing.T) {
	path, data := filepath.Join(t.TempDir(), "file"), bytes.Repeat([]byte("data"), 4096)
	for name, write := range map[string]func(path string) error{
		"Write": func(path string) error { return Write(path, data, 0o600) },
		"WriteWith": func(path string) error {
			return WriteWith(path, 0o600, func(f *os.File) error { _, err := f.Write(data); return err })
		},
		"Copy": func(path string) error {
			return errors.Join(WriteVolatile(path+"2", data, 0o600), Copy(path+"2", path, 0o600))
		},
	} {
		if err := write(path + name); err != nil {
			t.Fatal(err)
		}
		ondisk.Check(t, path+name)
	}
}

// TestCopyEndsWithHole: zeros at the end count too.
func TestCopyEndsWithHole(t *testing.T) {
	from := filepath.Join(t.TempDir(), "from")
	data := append([]byte("begin"), make([]byte, 1<<20)...)
	if err := os.WriteFile(from, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Copy(from, from+".copy", 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(from + ".copy"); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, not %d: %v", len(got), len(data), err)
	}
}
