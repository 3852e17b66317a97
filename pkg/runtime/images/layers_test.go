package images

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/mount"
)

func TestMounts(t *testing.T) {
	bind := []mount.Mount{{Type: "bind", Source: "/c/snapshots/1/fs", Options: []string{"rbind", "ro"}}}
	over := []mount.Mount{{Type: "overlay", Source: "overlay", Options: []string{
		"index=off", "workdir=/c/snapshots/3/work", "upperdir=/c/snapshots/3/fs", "lowerdir=/c/snapshots/2/fs:/c/snapshots/1/fs"}}}
	for _, c := range []struct{ name, got, want string }{
		{"the only layer", lowest(bind), "/c/snapshots/1/fs"},
		{"the topmost layer", lowest(over), "/c/snapshots/2/fs"},
		{"the first layer of a new one", upper(bind), "/c/snapshots/1/fs"},
		{"a further layer of a new one", upper(over), "/c/snapshots/3/fs"},
		{"no mount", lowest(nil), ""},
		{"as seen from here", Store{Root: "/host/c", Own: "/c"}.path("/c/snapshots/1/fs"), "/host/c/snapshots/1/fs"},
		{"elsewhere", Store{Root: "/host/c", Own: "/c"}.path("/d/snapshots/1/fs"), ""},
	} {
		if c.got != c.want {
			t.Errorf("%s: %q, want %q", c.name, c.got, c.want)
		}
	}
}

func TestLinkTree(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	old := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	for _, err := range []error{
		os.Mkdir(filepath.Join(from, "dir"), 0o1751),
		os.Chmod(filepath.Join(from, "dir"), 0o751|os.ModeSticky),
		os.WriteFile(filepath.Join(from, "dir", "file"), []byte("text"), 0o640),
		os.Symlink("nowhere", filepath.Join(from, "dir", "link")),
		os.Chtimes(filepath.Join(from, "dir"), old, old),
		linkTree(from, to),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	dir, err := os.Stat(filepath.Join(to, "dir"))
	if err != nil || dir.Mode() != os.ModeDir|os.ModeSticky|0o751 || !dir.ModTime().Equal(old) {
		t.Errorf("the directory is %v of %v (%v)", dir.Mode(), dir.ModTime(), err)
	}
	a, errA := os.Stat(filepath.Join(from, "dir", "file"))
	b, errB := os.Stat(filepath.Join(to, "dir", "file"))
	if errA != nil || errB != nil || !os.SameFile(a, b) {
		t.Errorf("the file was copied (%v, %v)", errA, errB)
	}
	if link, err := os.Readlink(filepath.Join(to, "dir", "link")); err != nil || link != "nowhere" {
		t.Errorf("the link leads to %q (%v)", link, err)
	}
	if a.Sys().(*syscall.Stat_t).Nlink != 2 {
		t.Error("there are more names than two")
	}
}

// TestStorePath: only what is in containerd's directory has a path for this process.
func TestStorePath(t *testing.T) {
	s := Store{Root: "/proc/7/root/var/lib/containerd", Own: "/var/lib/containerd"}
	for own, want := range map[string]string{
		"/var/lib/containerd/snapshots/1/fs": s.Root + "/snapshots/1/fs", "/var/lib/containerd-2/snapshots/1/fs": "", "/etc": "", "": "",
	} {
		if got := s.path(own); got != want {
			t.Errorf("%q: %q, not %q", own, got, want)
		}
	}
}
