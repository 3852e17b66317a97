package upgrade

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestDiskFull fills the disk before the datastore is copied, and while the new version is on trial.
func TestDiskFull(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("making a small file system needs root")
	}
	for _, c := range []struct {
		name    string
		before  bool // it is full when the trial begins
		want    Phase
		because string
	}{
		{"no room for a copy", true, Cancelled, "needs"},
		{"filled by the new version", false, RolledBack, "ended before"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			data := filepath.Join(dir, "data")
			if err := os.Mkdir(data, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := unix.Mount("tmpfs", data, "tmpfs", 0, "size=8m"); err != nil {
				t.Skipf("mounting a small file system: %v", err)
			}
			defer unix.Unmount(data, unix.MNT_DETACH)
			m := newMachine(t, dir)
			m.arm(nil)
			noise := make([]byte, 2<<20)
			_, _ = rand.Read(noise)
			m.write(filepath.Join(m.dirs.Etcd(), "member", "wal", "2.wal"), string(noise))
			m.write(m.place().trial(reserveName), string(noise[:1<<20]))
			if c.before {
				m.fill(filepath.Join(data, "filler"))
			}
			never := 1000
			m.guard(&never, nil)
			if !c.before {
				m.write(filepath.Join(m.dirs.Etcd(), "member", "snap", "db"), "new")
				m.fill(filepath.Join(m.dirs.Etcd(), "member", "snap", "more"))
			}
			m.guard(&never, nil)
			s := m.state()
			if s.Phase != c.want || !strings.Contains(s.Error, c.because) {
				t.Errorf("%s: %s", s.Phase, s.Error)
			}
			m.check()
			if got := m.read(filepath.Join(m.dirs.Etcd(), "member", "snap", "db")); got != "old" {
				t.Errorf("the data is %q", got)
			}
		})
	}
}

// TestDiskFullAtTheEnd: a version that works is confirmed when there is room again.
func TestDiskFullAtTheEnd(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("making a small file system needs root")
	}
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	if err := errors.Join(os.Mkdir(data, 0o755), unix.Mount("tmpfs", data, "tmpfs", 0, "size=8m")); err != nil {
		t.Skipf("mounting a small file system: %v", err)
	}
	defer unix.Unmount(data, unix.MNT_DETACH)
	m := newMachine(t, dir)
	m.arm(nil)
	never := 1000
	m.guard(&never, nil)
	s := m.state()
	filler := filepath.Join(data, "filler")
	m.fill(filler)
	tries := make(chan error)
	go func() {
		_, _, err := confirm(t.Context(), s, s.To.SHA256, func() string { return "" })
		tries <- err
	}()
	select {
	case err := <-tries:
		t.Fatalf("it has ended on a full disk: %v, %s", err, m.state().Phase)
	case <-time.After(confirmPause / 2):
	}
	if err := errors.Join(os.Remove(filler), <-tries); err != nil || m.state().Phase != Committed {
		t.Errorf("with room again: %v, %s", err, m.state().Phase)
	}
}

// TestHalfBegun: where a trial was begun and that could not be made safe, the old version does not start: what it writes would be taken back.
func TestHalfBegun(t *testing.T) {
	m := newMachine(t, t.TempDir())
	m.arm(nil)
	s := m.state()
	s.Phase = Trial
	if err := m.place().put(s); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(m.place().join("state.lock"), m.place().join("aside")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if err := os.Mkdir(m.place().join("state.lock"), 0o700); err != nil { // so that nothing can be written
		t.Fatal(err)
	}
	e := newEngine(m.dirs.Data)
	if err := e.cancel(s, errors.New("the disk fails")); err == nil {
		t.Error("the old version would start")
	}
}

// fill writes to a file until the disk is full.
func (m *machine) fill(path string) {
	m.t.Helper()
	f, err := os.Create(path)
	if err != nil {
		m.t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; size /= 2 {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
		if !errors.Is(err, unix.ENOSPC) {
			m.t.Fatal(err)
		}
	}
}
