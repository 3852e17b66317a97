package check

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/config"
)

// judgeSpace judges by the kubelet's thresholds: from 85 % on it removes images, from 95 % on it evicts pods.
func judgeSpace(fs unix.Statfs_t) []Verdict {
	const removes, evicts = 85, 95
	unit := uint64(fs.Bsize)
	var used, inodes uint64
	if total := fs.Blocks - fs.Bfree + fs.Bavail; total > 0 {
		used = 100 - fs.Bavail*100/total
	}
	if fs.Files > 0 {
		inodes = 100 - fs.Ffree*100/fs.Files
	}
	text := fmt.Sprintf("%.1f GiB are free; %d %% of the space and %d %% of the inodes are in use", float64(fs.Bavail*unit)/(1<<30), used, inodes)
	switch most := max(used, inodes); {
	case most >= evicts:
		return Failf("make room, or choose another --data-dir", "%s: the kubelet would evict pods", text)
	case most >= removes:
		return Warnf("make room, or choose another --data-dir", "%s: the kubelet would remove images that are not in use", text)
	}
	return Okf("%s", text)
}

// The test of the disk: number and size of writes, and its longest time.
const (
	syncs       = 100
	syncBytes   = 2 << 10
	longestSync = 1500 * time.Millisecond
)

// diskLatency writes and syncs as etcd's log does. Every change of the cluster waits for one such write on most servers.
func diskLatency(ctx context.Context, m *Machine) []Verdict {
	dir := nearest(m.Config.Dirs.Data)
	f, err := nameless(dir)
	if err != nil {
		return Skipf("no file can be made in %s: %v", dir, err)
	}
	defer f.Close()
	block := make([]byte, syncBytes)
	var took []time.Duration
	for began := time.Now(); len(took) < syncs && time.Since(began) < longestSync && ctx.Err() == nil; {
		start := time.Now()
		if _, err := f.Write(block); err != nil {
			return Failf("make room, or see dmesg", "writing in %s: %v", dir, err)
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return Failf("see dmesg: the disk may be broken", "syncing in %s: %v", dir, err)
		}
		took = append(took, time.Since(start))
	}
	return judgeLatency(m.Config.Role, took)
}

// nameless makes a file without a name. Where the file system cannot do that, it makes a file and removes its name.
func nameless(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return os.NewFile(uintptr(fd), dir), nil
	}
	if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EISDIR) {
		return nil, err
	}
	f, err := os.CreateTemp(dir, ".check-*")
	if err != nil {
		return nil, err
	}
	return f, os.Remove(f.Name())
}

// judgeLatency judges by etcd's recommendation of 10 ms and by its heartbeat of 100 ms, above which it loses its leader.
func judgeLatency(role config.Role, took []time.Duration) []Verdict {
	const slow, broken = 10 * time.Millisecond, 100 * time.Millisecond
	if len(took) == 0 {
		return Skipf("the time limit was over before the first write")
	}
	slices.Sort(took)
	p50, p99 := took[len(took)/2], took[min(len(took)-1, len(took)*99/100)]
	text := fmt.Sprintf("50 %% of %d writes are on disk after %s, 99 %% after %s", len(took), brief(p50), brief(p99))
	const fix = "put the data directory on an SSD of its own (--data-dir), and nothing else that syncs often"
	switch {
	case role == config.Agent && p99 > broken:
		return Warnf(fix, "%s: images and pods start slowly", text)
	case role == config.Agent:
		return Okf("%s", text)
	case p50 > broken:
		return Failf(fix, "%s: etcd cannot keep a leader on such a disk", text)
	case p99 > broken:
		return Warnf(fix, "%s: etcd may lose its leader at times (its limit is 100 ms)", text)
	case p99 > slow:
		return Warnf(fix, "%s: etcd recommends 10 ms", text)
	}
	return Okf("%s", text)
}

// brief rounds a duration to a useful number of digits.
func brief(d time.Duration) string {
	if d >= 100*time.Millisecond {
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(10 * time.Microsecond).String()
}

// systems are known kinds of file systems, with a verdict on those that are not fully suitable.
var systems = map[int64]struct {
	name string
	Verdict
}{
	unix.EXT4_SUPER_MAGIC:      {name: "ext4"},
	unix.XFS_SUPER_MAGIC:       {name: "xfs"},
	unix.BTRFS_SUPER_MAGIC:     {name: "btrfs"},
	unix.F2FS_SUPER_MAGIC:      {name: "f2fs"},
	0x2fc12fc1:                 {"zfs", Verdict{OK, "images need ZFS 2.2 or newer; see check overlayfs", ""}},
	unix.TMPFS_MAGIC:           {"tmpfs", Verdict{Warn, "the cluster is gone after a reboot", "choose a --data-dir on a disk, unless that is intended"}},
	unix.RAMFS_MAGIC:           {"ramfs", Verdict{Warn, "the cluster is gone after a reboot", "choose a --data-dir on a disk, unless that is intended"}},
	unix.OVERLAYFS_SUPER_MAGIC: {"overlay", Verdict{Warn, "data is lost with the container, and image layers are copied", "mount a volume there: docker run -v coracle:/var/lib/coracle"}},
	unix.NFS_SUPER_MAGIC:       {"nfs", Verdict{Fail, "neither etcd nor images work reliably on it", "choose a --data-dir on a local disk"}},
	unix.CIFS_SUPER_MAGIC:      {"cifs", Verdict{Fail, "neither etcd nor images work on it", "choose a --data-dir on a local disk"}},
	unix.SMB2_SUPER_MAGIC:      {"smb", Verdict{Fail, "neither etcd nor images work on it", "choose a --data-dir on a local disk"}},
	unix.V9FS_MAGIC:            {"9p", Verdict{Fail, "neither etcd nor images work reliably on it", "choose a --data-dir on a local disk"}},
	unix.FUSE_SUPER_MAGIC:      {"fuse", Verdict{Warn, "few of these file systems give the guarantees that etcd relies on", "choose a --data-dir on a local disk"}},
	unix.MSDOS_SUPER_MAGIC:     {"vfat", Verdict{Fail, "it has no owners, modes or links", "choose a --data-dir on ext4 or xfs"}},
}

func fileSystem(_ context.Context, m *Machine) []Verdict {
	dir := nearest(m.Config.Dirs.Data)
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return Failf("", "looking at %s: %v", dir, err)
	}
	return judgeFileSystem(int64(fs.Type), fs.Flags&unix.ST_RDONLY != 0)
}

func judgeFileSystem(kind int64, readOnly bool) []Verdict {
	s, known := systems[kind]
	switch {
	case readOnly:
		return Failf("mount it read-write; after an error the kernel does that: see dmesg", "the file system is read-only")
	case !known:
		return Okf("a file system of an unknown kind (%#x)", kind)
	case s.Finding == "":
		return Okf("%s", s.name)
	}
	v := s.Verdict
	v.Finding = s.name + ": " + v.Finding
	return []Verdict{v}
}
