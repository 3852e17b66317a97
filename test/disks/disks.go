// Package disks makes block devices that misbehave as real ones do: they lose what was not flushed when the power goes, and fail or
// stall when they are told to.
//
// A disk is a file of a small FUSE file system in the test's process, with a loop device and ext4 on it. The kernel passes each flush
// on as an fsync of that file. So whatever the file system and the programs above forget to flush is lost, as on a real disk.
package disks

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// Disk is a block device with ext4, which Mount mounts.
type Disk struct {
	t      testing.TB
	store  *store
	server *fuse.Server // while it is plugged in, as are the following
	dir    string       // of the FUSE file system
	loop   string       // the device
	at     string       // where it is mounted
}

// New makes a disk of the given size in MiB, and removes it when the test ends. The test is skipped where there is no FUSE or no loop
// device.
func New(t testing.TB, mib int64) *Disk {
	t.Helper()
	for _, need := range []string{"/dev/fuse", "/dev/loop-control"} {
		if _, err := os.Stat(need); err != nil || os.Geteuid() != 0 {
			t.Skipf("a disk that misbehaves needs root, FUSE and loop devices (%v)", err)
		}
	}
	backing, err := os.CreateTemp("", "coracle-disk-")
	if err != nil {
		t.Fatal(err)
	}
	d := &Disk{t: t, store: &store{size: mib << 20, file: backing, dirty: map[int64][]byte{}}}
	t.Cleanup(func() {
		d.Heal()
		d.Unplug()
		_ = backing.Close()
	})
	err = backing.Truncate(mib << 20)
	d.run("mkfs.ext4", "-q", "-m", "0", "-E", "lazy_itable_init=0,nodiscard", backing.Name())
	if err = errors.Join(err, os.Remove(backing.Name())); err != nil { // it lives as long as it is open
		t.Fatalf("making a disk: %v", err)
	}
	return d
}

func (d *Disk) run(name string, args ...string) string {
	d.t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		d.t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return string(bytes.TrimSpace(out))
}

// Mount plugs the disk in and mounts it at a directory, as a machine does that boots: ext4 replays its journal.
func (d *Disk) Mount(dir string) {
	d.t.Helper()
	d.store.set(func(s *store) { s.off = false })
	var err error
	if d.dir, err = os.MkdirTemp("", "coracle-fuse-"); err == nil {
		d.server, err = fs.Mount(d.dir, &root{store: d.store}, &fs.Options{MountOptions: fuse.MountOptions{
			DirectMountStrict: true, FsName: "coracle-disk", MaxWrite: 512 << 10,
		}})
	}
	if err != nil {
		d.t.Fatalf("plugging a disk in: %v", err)
	}
	d.loop = d.run("losetup", "--find", "--show", filepath.Join(d.dir, fileName))
	d.run("mount", "-t", "ext4", d.loop, dir)
	d.at = dir
}

// Cut takes the power away: of what was written since the last flush each block is kept with the given probability, and the rest is
// lost. All programs that use the disk must be frozen or dead. Unplug comes next, when they are dead, and then Mount.
func (d *Disk) Cut(keep float64, random *rand.Rand) (lost int) { return d.store.cut(keep, random) }

// Unplug unmounts the disk and unplugs it. Whoever makes a mount namespace gets a copy of all mounts, so the kernel may keep the former
// file system for longer. It fails there: the disk is another device when it is plugged in again.
func (d *Disk) Unplug() {
	d.t.Helper()
	if d.server == nil {
		return
	}
	err := abort(d.dir)
	if d.at != "" {
		err = errors.Join(err, unmount(d.at))
	}
	if d.loop != "" {
		_ = exec.Command("losetup", "--detach", d.loop).Run() // at the latest when the last file system on it is gone
	}
	if err = errors.Join(err, unix.Unmount(d.dir, unix.MNT_DETACH), os.Remove(d.dir)); err != nil {
		d.t.Errorf("unplugging a disk: %v", err)
	}
	d.server.Wait() // it has ended, because its connection has
	d.server, d.at, d.loop = nil, "", ""
}

// abort ends the connection of a FUSE file system. The kernel's control files for that are mounted for a moment, because not every
// machine has them at /sys/fs/fuse/connections.
func abort(dir string) (err error) {
	var at unix.Stat_t
	if err := unix.Stat(dir, &at); err != nil {
		return err
	}
	control, err := os.MkdirTemp("", "coracle-fusectl-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(control)) }()
	if err := unix.Mount("none", control, "fusectl", 0, ""); err != nil {
		return fmt.Errorf("mounting fusectl: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Unmount(control, unix.MNT_DETACH)) }()
	return os.WriteFile(filepath.Join(control, fmt.Sprint(unix.Minor(at.Dev)), "abort"), []byte("1"), 0o200)
}

// unmount unmounts a directory. A process that was killed may still use it for a moment.
func unmount(dir string) error {
	for deadline := time.Now().Add(20 * time.Second); ; <-time.After(10 * time.Millisecond) {
		err := unix.Unmount(dir, 0)
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// FailWrite fails the n-th write from now on, 1 for the next, with EIO; with more than one, so many in a row.
func (d *Disk) FailWrite(n, many int) {
	d.store.set(func(s *store) { s.failFrom, s.failTo = s.writes+n, s.writes+n+many })
}

// FailFlush fails the n-th flush from now on with EIO.
func (d *Disk) FailFlush(n int) { d.store.set(func(s *store) { s.failFlush = s.flushes + n }) }

// Stall lets no flush end for that long.
func (d *Disk) Stall(duration time.Duration) {
	d.store.set(func(s *store) { s.stall = time.Now().Add(duration) })
}

// Heal ends what FailWrite, FailFlush and Stall began.
func (d *Disk) Heal() {
	d.store.set(func(s *store) { s.failFrom, s.failTo, s.failFlush, s.stall = 0, 0, 0, time.Time{} })
}

// Counts are the numbers of writes and flushes so far, and of those that were failed on purpose.
func (d *Disk) Counts() (writes, flushes, failed int) {
	d.store.set(func(s *store) { writes, flushes, failed = s.writes, s.flushes, s.failed })
	return writes, flushes, failed
}
