package member

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/etcd/export"
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
	_, err := Save(t.Context(), e.Socket, file, nil)
	stop()
	if err != nil {
		t.Fatal(err)
	}
	entries := exported(t, file)
	full := 0
	for kib := 16; kib < 1024; kib += 24 {
		dir := t.TempDir()
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dk", kib)); err != nil {
			t.Skipf("mounting a small file system: %v", err)
		}
		if Restore(file, filepath.Join(dir, "etcd"), e.Name) != nil {
			full++
		}
		if err := os.RemoveAll(filepath.Join(dir, "etcd")); err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(entries); err == nil && os.WriteFile(filepath.Join(dir, "entries"), data, 0o600) == nil {
			if Restore(filepath.Join(dir, "entries"), filepath.Join(dir, "etcd"), e.Name) != nil {
				full++
			}
		}
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Fatal(err)
		}
	}
	if full == 0 {
		t.Error("no disk was full")
	}
}

// exported returns a file with the entries of a snapshot.
func exported(t *testing.T, snapshot string) string {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "entries"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := export.Write(f, snapshot); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

// TestTry: an etcd that is made of a backup has what the running one had at that revision, whatever was written since, and it is
// noticed if it has not.
func TestTry(t *testing.T) {
	e := newEtcd(t)
	stop := mustRun(t, e)
	defer stop()
	for i := range 50 {
		put(t, e, fmt.Sprintf("key%d", i%20), strings.Repeat("v", i))
	}
	c := client(t, e)
	defer c.Close()
	if _, err := c.Compact(t.Context(), 30, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "backup")
	want, err := Save(t.Context(), e.Socket, file, nil)
	if err != nil || want.Objects != 20 || want.Revision != running(e).server.Server.KV().Rev() {
		t.Fatalf("%+v, %v", want, err)
	}
	put(t, e, "key0", "later")
	for _, from := range []string{file, exported(t, file)} {
		got, err := Try(t.Context(), from, filepath.Join(t.TempDir(), "etcd"), nil)
		if err != nil || got != want {
			t.Errorf("%+v, want %+v, %v", got, want, err)
		}
	}
	other := newEtcd(t)
	stopOther := mustRun(t, other)
	defer stopOther()
	for i := range 50 {
		put(t, other, fmt.Sprintf("key%d", i%20), strings.Repeat("w", i))
	}
	if _, err := Save(t.Context(), other.Socket, file+"2", nil); err != nil {
		t.Fatal(err)
	}
	if got, err := Try(t.Context(), file+"2", filepath.Join(t.TempDir(), "etcd"), nil); err != nil || got.Sum == want.Sum {
		t.Errorf("another etcd is taken for this one: %+v, %v", got, err)
	}
	if err := os.WriteFile(file, []byte("no database"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := Try(t.Context(), file, filepath.Join(t.TempDir(), "etcd"), nil); err == nil {
		t.Errorf("a text was taken for a backup: %+v", got)
	}
}
