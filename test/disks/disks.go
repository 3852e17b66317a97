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
	dir    string // of the FUSE file system
	store  *store
	server *fuse.Server
	at     string // where it is mounted
	loop   string // the device while it is attached
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
	if err == nil {
		err = os.Remove(backing.Name()) // it lives as long as it is open
	}
	if err == nil {
		err = backing.Truncate(mib << 20)
	}
	d := &Disk{t: t, dir: mountPoint(t), store: &store{size: mib << 20, file: backing, dirty: map[int64][]byte{}}}
	if err == nil {
		d.server, err = fs.Mount(d.dir, &root{store: d.store}, &fs.Options{MountOptions: fuse.MountOptions{
			DirectMountStrict: true, FsName: "coracle-disk", MaxWrite: 512 << 10,
		}})
	}
	if err != nil {
		t.Fatalf("making a disk: %v", err)
	}
	t.Cleanup(d.remove)
	d.run("mkfs.ext4", "-q", "-m", "0", "-E", "lazy_itable_init=0,nodiscard", filepath.Join(d.dir, fileName))
	return d
}

// mountPoint makes a directory that is not removed while it is busy.
func mountPoint(t testing.TB) string {
	dir, err := os.MkdirTemp("", "coracle-fuse-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(dir) })
	return dir
}

func (d *Disk) remove() {
	d.Heal()
	if err := d.detach(); err != nil && !errors.Is(err, errBusy) {
		d.t.Errorf("removing a disk: %v", err)
	}
	if err := d.server.Unmount(); err != nil {
		_ = unix.Unmount(d.dir, unix.MNT_DETACH)
	}
	_ = d.store.file.Close()
}

func (d *Disk) run(name string, args ...string) string {
	d.t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		d.t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return string(bytes.TrimSpace(out))
}

// Mount mounts the disk at a directory, as a machine does that boots: ext4 replays its journal.
func (d *Disk) Mount(dir string) {
	d.t.Helper()
	d.store.set(func(s *store) { s.off = false })
	d.loop = d.run("losetup", "--find", "--show", filepath.Join(d.dir, fileName))
	d.run("mount", "-t", "ext4", d.loop, dir)
	d.at = dir
}

// Cut takes the power away: of what was written since the last flush each block is kept with the given probability, and the rest is
// lost. All programs that use the disk must be frozen or dead. Mount comes next.
func (d *Disk) Cut(keep float64, random *rand.Rand) (lost int) {
	d.t.Helper()
	lost = d.store.cut(keep, random)
	return lost
}

// Unplug detaches the disk after Cut, when the programs that used it are dead.
func (d *Disk) Unplug() {
	d.t.Helper()
	err := d.detach()
	if errors.Is(err, errBusy) {
		d.t.Skip(err)
	}
	if err != nil {
		d.t.Fatalf("unplugging a disk: %v", err)
	}
}

// errBusy is the error of a disk that another program still has mounted: whoever makes a mount namespace gets a copy of all mounts.
var errBusy = errors.New("another mount namespace keeps the disk mounted")

// detach unmounts the disk. A process that was killed, or the kernel, may still use it for a moment.
func (d *Disk) detach() error {
	for deadline := time.Now().Add(20 * time.Second); d.at != ""; <-time.After(10 * time.Millisecond) {
		err := unix.Unmount(d.at, 0)
		if err == nil || errors.Is(err, unix.EINVAL) {
			d.at = ""
		} else if time.Now().After(deadline) {
			return fmt.Errorf("unmounting %s: %w", d.at, errors.Join(err, unix.Unmount(d.at, unix.MNT_DETACH)))
		}
	}
	if d.loop == "" {
		return nil
	}
	out, err := exec.Command("losetup", "--detach", d.loop).CombinedOutput()
	if err != nil {
		return fmt.Errorf("losetup --detach %s: %w: %s", d.loop, err, out)
	}
	loop := filepath.Base(d.loop)
	d.loop = ""
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); <-time.After(10 * time.Millisecond) {
		if _, err := os.Stat("/sys/block/" + loop + "/loop/backing_file"); err != nil {
			return nil
		}
	}
	if mountedElsewhere("/dev/" + loop) {
		return fmt.Errorf("%s: %w", loop, errBusy)
	}
	return fmt.Errorf("%s is still in use, and no mount namespace has it", loop)
}

// mountedElsewhere reports whether any process's mount namespace has a device mounted.
func mountedElsewhere(device string) bool {
	files, _ := filepath.Glob("/proc/[0-9]*/mountinfo")
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && strings.Contains(string(text), " "+device+" ") {
			return true
		}
	}
	return false
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
