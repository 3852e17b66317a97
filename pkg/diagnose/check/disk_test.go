package check

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/test/disks"
)

// TestDisk: each way in which a disk takes no more files is told in a sentence of its own.
func TestDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("making a small file system needs root")
	}
	for _, c := range []struct {
		options string
		remount uintptr
		want    string
	}{
		{"size=200m", 0, ""},
		{"size=64m", 0, "MiB of space left and needs 128 MiB: make room"},
		{"size=200m,nr_inodes=1000", 0, "inodes free and needs 2000: remove files"},
		{"size=200m", unix.MS_RDONLY, "is on a read-only file system: mount it read-write"},
	} {
		dir := t.TempDir()
		if err := unix.Mount("none", dir, "tmpfs", 0, c.options); err != nil {
			t.Skipf("mounting a small file system: %v", err)
		}
		defer unix.Unmount(dir, unix.MNT_DETACH)
		if c.remount != 0 {
			if err := unix.Mount("none", dir, "tmpfs", unix.MS_REMOUNT|c.remount, ""); err != nil {
				t.Fatal(err)
			}
		}
		got := strings.Join(Disk(paths.Dirs{Data: dir}), "; ")
		if !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: %q", c.options, got)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	}
}

// TestOverlayAfterError: an error of the disk that is over does not keep coracle from starting.
func TestOverlayAfterError(t *testing.T) {
	dir := t.TempDir()
	d := disks.New(t, 64)
	d.Mount(dir)
	f, err := os.Create(filepath.Join(dir, "file"))
	if err == nil {
		_, err = f.Write(make([]byte, 1<<20))
	}
	if err != nil {
		t.Fatal(err)
	}
	d.FailWrite(1, 1)
	if err := f.Sync(); !errors.Is(err, unix.EIO) {
		t.Fatalf("the disk does not fail: %v", err)
	}
	d.Heal()
	if err := errors.Join(f.Close(), mountOverlay(dir)); err != nil {
		t.Error(err)
	}
}
