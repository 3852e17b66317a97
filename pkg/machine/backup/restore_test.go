package backup

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// machine is a stopped server with a backup of it.
type machine struct {
	*testing.T
	dirs paths.Dirs
	file string
}

func newMachine(t *testing.T) machine {
	dir := t.TempDir()
	m := machine{t, paths.Dirs{Data: filepath.Join(dir, "data"), Run: filepath.Join(dir, "run")}, filepath.Join(dir, "backup")}
	write(t, m.dirs.ServerCluster(), "of the backup", 0o600)
	files, err := Gather(m.dirs, content("database"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Write(m.file, Keys{}, Manifest{Node: "one"}, files); err != nil {
		t.Fatal(err)
	}
	return m
}

// restore restores the backup; extra is called with the server's new directory before it is put in place.
func (m machine) restore(extra func(server string)) error {
	m.Helper()
	r, err := NewRestore(m.dirs, m.file, Keys{})
	if err != nil {
		m.Fatal(err)
	}
	defer r.Close()
	return r.Run("", func(snapshot, dir, member string) error {
		if member != "one" {
			m.Errorf("the member is called %q", member)
		}
		write(m.T, filepath.Join(dir, "member"), "etcd", 0o600)
		if extra != nil {
			extra(filepath.Dir(dir))
		}
		return nil
	})
}

func (m machine) want(path, text string) {
	m.Helper()
	if got, _ := os.ReadFile(filepath.Join(m.dirs.Data, path)); string(got) != text {
		m.Errorf("%s holds %q, want %q", path, got, text)
	}
}

func (m machine) mount(dir string) {
	m.Helper()
	if os.Geteuid() != 0 {
		m.Skip("mounting needs root")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		m.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		m.Fatal(err)
	}
	m.Cleanup(func() {
		for _, d := range []string{dir, strings.Replace(dir, "server", "server.before-restore", 1)} {
			for unix.Unmount(d, 0) == nil {
			}
		}
	})
}

func TestRestore(t *testing.T) {
	m := newMachine(t)
	write(t, filepath.Join(m.dirs.Snapshots(), "monday"), "a backup", 0o600)
	for _, former := range []string{"first", "second"} {
		write(t, m.dirs.ServerCluster(), former, 0o600)
		if err := m.restore(nil); err != nil {
			t.Fatal(err)
		}
		m.want("server/cluster.json", "of the backup")
		m.want("server/etcd/member", "etcd")
		m.want("server/snapshots/monday", "a backup")
		m.want("server.before-restore/cluster.json", former)
	}
	if _, err := os.Stat(filepath.Join(m.dirs.Data, "server.restoring")); err == nil {
		t.Error("the staging directory is left")
	}
}

// TestRemoveLeft: the next start removes what a killed restore has left, and nothing else.
func TestRemoveLeft(t *testing.T) {
	m := newMachine(t)
	keys := filepath.Join(m.dirs.Data, "server.restoring", "server", "tls", "key")
	download := filepath.Join(m.dirs.Data, ".snapshot-1", ".db.tar.zst.2")
	for _, path := range []string{keys, download} {
		write(t, path, "secret", 0o600)
	}
	if err := os.Chmod(filepath.Dir(download), 0o700); err != nil {
		t.Fatal(err)
	}
	held, err := lock(m.dirs.Data, unix.LOCK_SH) // any user can do that
	if err != nil {
		t.Fatal(err)
	}
	if err := RemoveLeft(m.dirs); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("with a held lock: %v", err)
	}
	held.Close()
	if err := RemoveLeft(m.dirs); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{keys, filepath.Dir(download)} {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%s is left", path)
		}
	}
	m.want("server/cluster.json", "of the backup")
}

// TestRestoreOnNewMachine: there is nothing to replace.
func TestRestoreOnNewMachine(t *testing.T) {
	m := newMachine(t)
	if err := os.RemoveAll(m.dirs.Data); err != nil {
		t.Fatal(err)
	}
	if err := m.restore(nil); err != nil {
		t.Fatal(err)
	}
	m.want("server/cluster.json", "of the backup")
}

// TestRestoreKeepsMountedSnapshots: backups on a file system of their own outlive any number of restores.
func TestRestoreKeepsMountedSnapshots(t *testing.T) {
	m := newMachine(t)
	m.mount(m.dirs.Snapshots())
	write(t, filepath.Join(m.dirs.Snapshots(), "monday"), "a backup", 0o600)
	for _, former := range []string{"first", "second", "third"} {
		write(t, m.dirs.ServerCluster(), former, 0o600)
		if err := m.restore(nil); err != nil {
			t.Fatal(err)
		}
		m.want("server/snapshots/monday", "a backup")
		m.want("server.before-restore/cluster.json", former)
	}
	if mounts, err := mountsIn(m.dirs.Snapshots()); err != nil || len(mounts) != 1 {
		t.Errorf("mounted at the backups: %q, %v", mounts, err)
	}
}

// TestRestoreRefusesMountedData: what is mounted in the server's directory could not be replaced.
func TestRestoreRefusesMountedData(t *testing.T) {
	for _, dir := range []string{"server", "server/etcd", "server/pki", "server.before-restore/etcd", "server.restoring/server"} {
		t.Run(dir, func(t *testing.T) {
			m := newMachine(t)
			m.mount(filepath.Join(m.dirs.Data, dir))
			write(t, filepath.Join(m.dirs.Data, dir, "file"), "mounted", 0o600)
			write(t, m.dirs.ServerCluster(), "now", 0o600)
			if err := m.restore(nil); err == nil || !strings.Contains(err.Error(), dir+" is a mount point") {
				t.Errorf("restored: %v", err)
			}
			m.want(filepath.Join(dir, "file"), "mounted")
			m.want("server/cluster.json", "now")
		})
	}
}

// TestRestoreLeavesBackups: backups that could not be moved are neither removed by that restore nor by the next.
func TestRestoreLeavesBackups(t *testing.T) {
	m := newMachine(t)
	write(t, filepath.Join(m.dirs.Snapshots(), "monday"), "a backup", 0o600)
	occupied := func(server string) { write(t, filepath.Join(server, "snapshots"), "not a directory", 0o600) }
	write(t, m.dirs.ServerCluster(), "first", 0o600)
	if err := m.restore(occupied); err == nil || !strings.Contains(err.Error(), "moving backups") {
		t.Errorf("restored: %v", err)
	}
	if err := m.restore(nil); err == nil {
		t.Error("the second restore removed what the first one left")
	}
	m.want("server.before-restore/snapshots/monday", "a backup")
	m.want("server.before-restore/cluster.json", "first")

	// Once the place is free, the next restore moves them.
	if err := os.Remove(m.dirs.Snapshots()); err != nil {
		t.Fatal(err)
	}
	if err := m.restore(nil); err != nil {
		t.Fatal(err)
	}
	m.want("server/snapshots/monday", "a backup")

	// Two directories with backups are not merged.
	write(t, filepath.Join(m.dirs.Data, "server.before-restore/snapshots/sunday"), "an older one", 0o600)
	if err := m.restore(nil); err == nil || !strings.Contains(err.Error(), "has backups that an earlier restore left") {
		t.Errorf("restored: %v", err)
	}
	m.want("server.before-restore/snapshots/sunday", "an older one")
}

// TestRestoreKilledBetweenMounts: the backups' mount is at both places after a kill, and at its own after the next restore.
func TestRestoreKilledBetweenMounts(t *testing.T) {
	m := newMachine(t)
	m.mount(m.dirs.Snapshots())
	write(t, filepath.Join(m.dirs.Snapshots(), "monday"), "a backup", 0o600)
	second := filepath.Join(m.dirs.Data, "server.before-restore/snapshots")
	if err := os.MkdirAll(second, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(m.dirs.Snapshots(), second, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	if err := m.restore(nil); err != nil {
		t.Fatal(err)
	}
	m.want("server/snapshots/monday", "a backup")
	if mounts, err := mountsIn(m.dirs.Data); err != nil || len(mounts) != 1 {
		t.Errorf("mounted: %q, %v", mounts, err)
	}
}

// TestRestoreWithoutExchange: a file system that cannot exchange directories keeps the data of an earlier restore.
func TestRestoreWithoutExchange(t *testing.T) {
	m := newMachine(t)
	write(t, m.dirs.ServerCluster(), "first", 0o600)
	if err := m.restore(nil); err != nil {
		t.Fatal(err)
	}
	r, err := NewRestore(m.dirs, m.file, Keys{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.swap = func(string, string) error { return unix.EINVAL }
	if err := r.Run("", func(_, dir, _ string) error { return os.Mkdir(dir, 0o700) }); !errors.Is(err, unix.EINVAL) {
		t.Errorf("restored: %v", err)
	}
	m.want("server.before-restore/cluster.json", "first")
	if _, err := os.Stat(r.staging()); err == nil {
		t.Error("the staging directory is left")
	}
}

// TestExchangeFails although a try of it did not: the data is what it was, and nothing of the backup is left.
func TestExchangeFails(t *testing.T) {
	m := newMachine(t)
	write(t, m.dirs.ServerCluster(), "first", 0o600)
	r, err := NewRestore(m.dirs, m.file, Keys{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	calls := 0
	r.swap = func(one, two string) error {
		if calls++; calls > 1 {
			return unix.EIO
		}
		return swap(one, two)
	}
	if err := r.Run("", func(_, dir, _ string) error { return os.Mkdir(dir, 0o700) }); !errors.Is(err, unix.EIO) {
		t.Errorf("restored: %v", err)
	}
	m.want("server/cluster.json", "first")
	for _, dir := range []string{r.staging(), r.former()} {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s is left", dir)
		}
	}
}

// TestRestoreOverEmptySnapshots: an empty directory for backups is not in the way of those that an earlier restore left in the former data.
func TestRestoreOverEmptySnapshots(t *testing.T) {
	m := newMachine(t)
	write(t, filepath.Join(m.dirs.Data, "server.before-restore/snapshots/sunday"), "an older one", 0o600)
	if err := os.RemoveAll(filepath.Join(m.dirs.Data, "server/snapshots")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(m.dirs.Data, "server/snapshots"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := m.restore(nil); err != nil {
		t.Fatal(err)
	}
	m.want("server/snapshots/sunday", "an older one")
}
