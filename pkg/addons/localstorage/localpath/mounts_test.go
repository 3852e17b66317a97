package localpath

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMountOf(t *testing.T) {
	base := t.TempDir()
	disk, beside, link := filepath.Join(base, "my disk"), filepath.Join(base, "my disk 2"), filepath.Join(base, "link")
	for _, dir := range []string{disk, beside} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(disk, link); err != nil {
		t.Fatal(err)
	}
	root, err := MountOf(disk)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, ""); err != nil {
		t.Skipf("mounting: %v", err)
	}
	defer func() { _ = unix.Unmount(disk, unix.MNT_DETACH) }()
	for dir, want := range map[string]string{disk: disk, disk + "/not/there": disk, link + "/not": disk, beside: root, "/": "/"} {
		if got, err := MountOf(dir); got != want || err != nil {
			t.Errorf("%s is on %s, want %s: %v", dir, got, want, err)
		}
	}
	if mounts, err := MountPoints(); err != nil || !slices.Contains(mounts, disk) {
		t.Errorf("%s is not in %v: %v", disk, mounts, err)
	}
}
