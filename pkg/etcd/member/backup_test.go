package member

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRestoreOnFullDisk: wherever a restore runs out of room it returns an error. etcd's code ends the process at some of these places.
func TestRestoreOnFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("making small file systems needs root")
	}
	e := newEtcd(t)
	stop := mustRun(t, e)
	put(t, e, "a", strings.Repeat("1", 100_000))
	file := filepath.Join(t.TempDir(), "backup")
	_, err := Save(t.Context(), e.Socket, file)
	stop()
	if err != nil {
		t.Fatal(err)
	}
	full := 0
	for kib := 16; kib < 1024; kib += 24 {
		dir := t.TempDir()
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dk", kib)); err != nil {
			t.Skipf("mounting a small file system: %v", err)
		}
		if Restore(file, filepath.Join(dir, "etcd"), e.Name) != nil {
			full++
		}
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Fatal(err)
		}
	}
	if full == 0 {
		t.Error("no disk was full")
	}
}
