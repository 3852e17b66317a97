package manifests

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// TestServersShareADirectory: all of them call it the same, whoever was first.
func TestServersShareADirectory(t *testing.T) {
	a := newAPI(t)
	for _, before := range []string{"", "emptied"} {
		for range 20 {
			dir := t.TempDir()
			if before != "" {
				write(t, dir, map[string]string{idFile: "\n"})
			}
			var servers []*deployer
			var running sync.WaitGroup
			for range 5 {
				d := a.start(dir)
				servers = append(servers, d)
				running.Go(d.scan)
			}
			running.Wait()
			data, err := os.ReadFile(filepath.Join(dir, idFile))
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range servers {
				if before != "" { // these may take each other's place, and see it with the next look
					d.scan()
				}
				if d.origin.id != strings.TrimSpace(string(data)) {
					t.Fatalf("a server says %q, the file %q", d.origin.id, data)
				}
			}
			if left, _ := os.ReadDir(dir); len(left) != 1 {
				t.Fatalf("left behind: %v", left)
			}
		}
	}
}

// TestAMountThatIsLate lands while the directory below it is read: what was found is not what is there.
func TestAMountThatIsLate(t *testing.T) {
	a, base := newAPI(t), t.TempDir()
	dir, kept := filepath.Join(base, "manifests"), filepath.Join(base, "kept")
	write(t, dir, map[string]string{"x.yaml": configMaps("a")})
	expect(t, a.start(dir), a, "a", "a")
	move(t, dir, kept)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(dir, "z.yaml") // reading it waits for the test
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	d := a.start(dir)
	var scanning sync.WaitGroup
	scanning.Go(d.scan)
	writer, err := os.OpenFile(pipe, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	move(t, dir, dir+".below")
	move(t, kept, dir)
	writer.Close()
	scanning.Wait()
	d.step(t.Context())
	if exists, _ := a.look(); exists != "a" {
		t.Errorf("exists %q", exists)
	}
	expect(t, d, a, "a", "a")
}

// TestTheIdentityIsNoSecret: people keep the directory under version control. One that cannot be read is named.
func TestTheIdentityIsNoSecret(t *testing.T) {
	a, dir := newAPI(t), t.TempDir()
	d := a.start(dir)
	d.scan()
	path := filepath.Join(dir, idFile)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("%v, %v", info, err)
	}
	os.Remove(path)
	if err := os.Mkdir(path, 0o700); err != nil { // root reads every file
		t.Fatal(err)
	}
	warned := warnings(d)
	d.scan()
	if w := strings.Join(warned(), ""); !strings.Contains(w, path) {
		t.Errorf("warnings: %q", w)
	}
}

// TestADirectoryOfTheSameFiles takes another's place, as a new checkout does that a link leads to: they are looked after there.
func TestADirectoryOfTheSameFiles(t *testing.T) {
	a, base := newAPI(t), t.TempDir()
	dir, one, two := filepath.Join(base, "manifests"), filepath.Join(base, "one"), filepath.Join(base, "two")
	files := map[string]string{"x.yaml": configMaps("a"), "y.yaml": configMaps("b", "c")}
	write(t, one, files)
	write(t, two, files)
	if err := os.Symlink(one, dir); err != nil {
		t.Fatal(err)
	}
	d := a.start(dir)
	expect(t, d, a, "a b c", "a b c")
	if err := os.Symlink(two, dir+".new"); err != nil {
		t.Fatal(err)
	}
	move(t, dir+".new", dir)
	expect(t, d, a, "a b c", "a b c")
	expect(t, d, a, "a b c", "")
	write(t, two, map[string]string{"y.yaml": configMaps("c")})
	expect(t, d, a, "a c", "c")
	os.Remove(filepath.Join(two, "x.yaml"))
	expect(t, d, a, "c", "")
}
