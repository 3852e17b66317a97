package containerd

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// TestAwaitRoom: a disk that is full delays the start, but not for ever.
func TestAwaitRoom(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Skipf("mounting a small file system: %v", err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	c := Containerd{Root: dir}
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if c.awaitRoom(t.Context()); time.Since(began) != 0 {
			t.Error("it waits though there is room")
		}
		file := filepath.Join(dir, "file")
		if err := os.WriteFile(file, make([]byte, 3<<19), 0o600); err != nil {
			t.Fatal(err)
		}
		go func() {
			time.Sleep(10 * time.Second)
			os.Remove(file)
		}()
		if c.awaitRoom(t.Context()); time.Since(began) < 10*time.Second || time.Since(began) > 11*time.Second {
			t.Errorf("with room after 10 s it waits for %s", time.Since(began))
		}
		if err := os.WriteFile(file, make([]byte, 3<<19), 0o600); err != nil {
			t.Fatal(err)
		}
		began = time.Now()
		if c.awaitRoom(t.Context()); time.Since(began) < roomPatience || time.Since(began) > 2*roomPatience {
			t.Errorf("without room it waits for %s", time.Since(began))
		}
	})
}
