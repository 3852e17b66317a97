package containerd

import (
	"errors"
	"os"
	"os/exec"
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
	image, dir := filepath.Join(t.TempDir(), "image"), t.TempDir()
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 64<<20)); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"mkfs.ext4", "-q", image}, {"mount", "-o", "loop", image, dir}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Skipf("mounting a small file system: %s: %v: %s", args[0], err, out)
		}
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	file := filepath.Join(dir, "file")
	fill := func() {
		t.Helper()
		if err := os.WriteFile(file, make([]byte, 64<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
			t.Fatalf("the disk is not full: %v", err)
		}
	}
	c := Containerd{Root: dir}
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if c.awaitRoom(t.Context()); time.Since(began) != 0 {
			t.Error("it waits though there is room")
		}
		fill()
		go func() {
			time.Sleep(10 * time.Second)
			os.Remove(file)
		}()
		if c.awaitRoom(t.Context()); time.Since(began) < 10*time.Second || time.Since(began) > 11*time.Second {
			t.Errorf("with room after 10 s it waits for %s", time.Since(began))
		}
		fill()
		began = time.Now()
		if c.awaitRoom(t.Context()); time.Since(began) < roomPatience || time.Since(began) > 2*roomPatience {
			t.Errorf("without room it waits for %s", time.Since(began))
		}
	})
}
