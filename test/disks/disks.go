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
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// maxWrite is the largest request in bytes.
const maxWrite = 256 << 10

// Disk is a block device with ext4, which Mount mounts.
type Disk struct {
	t      testing.TB
	store  *store
	server *fuse.Server // while it is plugged in, as are the following
	dir    string       // of the FUSE file system
	loop   string       // the device
	at     string       // where it is mounted
}

// New makes a disk of the given size in MiB, and removes it when the test ends. options are further ones of mkfs.ext4. The test is
// skipped where there is no FUSE or no loop device.
func New(t testing.TB, mib int64, options ...string) *Disk {
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
	d.run("mkfs.ext4", slices.Concat([]string{"-q", "-m", "0", "-E", "lazy_itable_init=0,nodiscard"}, options, []string{backing.Name()})...)
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

// Mount plugs the disk in and mounts it at a directory, as a machine does that boots: e2fsck replays the journal, and looks at all of the
// file system if the kernel has noted an error.
func (d *Disk) Mount(dir string) {
	d.t.Helper()
	d.store.set(func(s *store) { s.off = false })
	var err error
	if d.dir, err = os.MkdirTemp("", "coracle-fuse-"); err == nil {
		d.server, err = fs.Mount(d.dir, &root{store: d.store}, &fs.Options{MountOptions: fuse.MountOptions{
			DirectMountStrict: true, FsName: "coracle-disk", MaxWrite: maxWrite,
		}})
	}
	if err != nil {
		d.t.Fatalf("plugging a disk in: %v", err)
	}
	d.loop = d.run("losetup", "--find", "--show", filepath.Join(d.dir, fileName))
	// A larger request would reach the store in parts, and where a part fails after one that did not, the loop device takes the short write
	// for a success (lo_complete_rq): the disk would lie.
	limit := filepath.Join("/sys/block", filepath.Base(d.loop), "queue/max_sectors_kb")
	if err := os.WriteFile(limit, []byte(strconv.Itoa(maxWrite>>10)), 0); err != nil {
		d.t.Fatal(err)
	}
	// 1 and 2 are errors that were corrected; more needs a person, on any machine.
	if out, err := exec.Command("e2fsck", "-p", d.loop).CombinedOutput(); err != nil {
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() > 2 {
			d.t.Fatalf("the file system is damaged: %v: %s", err, out)
		}
		d.t.Logf("e2fsck: %s", bytes.TrimSpace(out))
	}
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

// FillUp lets the n-th write from now on and all after it fail with ENOSPC where they need blocks that were never written: a thin disk
// whose pool is full.
func (d *Disk) FillUp(n int) { d.store.set(func(s *store) { s.full = s.writes + n }) }

// Sync flushes all that was written.
func (d *Disk) Sync() {
	d.t.Helper()
	dir, err := os.Open(d.at)
	if err == nil {
		err = errors.Join(unix.Syncfs(int(dir.Fd())), dir.Close())
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// Abort makes the file system read-only, as the kernel does after an error of the disk: only Unplug and Mount help.
func (d *Disk) Abort() {
	d.t.Helper()
	d.run("mount", "-o", "remount,abort", d.at)
}

// ReadOnly reports whether the kernel has given up writing the file system after an error.
func (d *Disk) ReadOnly() bool {
	f, err := os.CreateTemp(d.at, ".probe-") // each time a new file: opening an old one needs no write
	if err == nil {
		_ = errors.Join(f.Close(), os.Remove(f.Name()))
	}
	return errors.Is(err, unix.EROFS)
}

// Stall lets no flush end for that long.
func (d *Disk) Stall(duration time.Duration) {
	d.store.set(func(s *store) { s.stall = time.Now().Add(duration) })
}

// Heal ends what FailWrite, FailFlush, FillUp and Stall began.
func (d *Disk) Heal() {
	d.store.set(func(s *store) { s.failFrom, s.failTo, s.failFlush, s.full, s.stall = 0, 0, 0, 0, time.Time{} })
}

// Counts are the numbers of writes and flushes so far, and of those that were failed on purpose.
func (d *Disk) Counts() (writes, flushes, failed int) {
	d.store.set(func(s *store) { writes, flushes, failed = s.writes, s.flushes, s.failed })
	return writes, flushes, failed
}
