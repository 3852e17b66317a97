package hosts

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Freeze stops all processes of a host, as a hypervisor that pauses a virtual machine. Thaw resumes them. A frozen host
// can be killed.
func (h *Host) Freeze() {
	h.t.Helper()
	h.must(h.vm.Freeze(true))
}

// Thaw ends Freeze.
func (h *Host) Thaw() {
	h.t.Helper()
	h.must(h.vm.Freeze(false))
}

// LimitDisk gives the host a data directory of its own small file system, of the given size in MiB. The host must be
// down, or not have been used yet: it is booted again.
func (h *Host) LimitDisk(mib int64) {
	h.t.Helper()
	h.Kill()
	image := filepath.Join(h.dir, "disk")
	file, err := os.Create(image)
	h.must(err)
	h.must(file.Truncate(mib << 20))
	h.must(file.Close())
	for _, args := range [][]string{{"mkfs.ext4", "-q", "-m", "0", image}, {"mount", "-o", "loop", image, h.Data()}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			h.t.Fatalf("making a disk for %s: %s: %v: %s", h.Name, strings.Join(args, " "), err, out)
		}
	}
	h.t.Cleanup(func() {
		h.Kill()
		_ = unix.Unmount(h.Data(), unix.MNT_DETACH)
	})
	h.Boot()
}

// Disk is a disk that a test made.
type Disk interface {
	Mount(dir string)
	Unplug()
}

// Insert gives the host a data directory on a disk. The host must not have been used yet: it is booted again.
func (h *Host) Insert(d Disk) {
	h.t.Helper()
	h.Kill()
	d.Mount(h.Data())
	h.t.Cleanup(func() {
		h.Kill()
		d.Unplug()
	})
	h.Boot()
}

// filler is the name of the file with which FillDisk fills a disk.
const filler = "filler"

// FillDisk fills the disk of the host's data directory, which LimitDisk or Insert must have made.
func (h *Host) FillDisk() {
	h.t.Helper()
	file, err := os.Create(h.Data(filler))
	h.must(err)
	defer file.Close()
	var room unix.Statfs_t
	h.must(unix.Statfs(h.Data(), &room))
	if size := int64(room.Bavail) * room.Bsize * 9 / 10; unix.Fallocate(int(file.Fd()), 0, 0, size) == nil { // most of it is quicker without writing
		_, err = file.Seek(size, io.SeekStart)
		h.must(err)
	}
	block := make([]byte, 1<<20)
	for size := len(block); size >= 512; size /= 2 {
		for err == nil {
			_, err = file.Write(block[:size])
		}
		if !errors.Is(err, syscall.ENOSPC) {
			h.must(err)
		}
		err = nil
	}
}

// FillInodes uses all inodes of the disk of the host's data directory, which Insert must have made.
func (h *Host) FillInodes() {
	h.t.Helper()
	h.must(os.MkdirAll(h.Data(filler), 0o755))
	for n := 0; ; n++ {
		file, err := os.Create(h.Data(filler, strconv.Itoa(n)))
		if errors.Is(err, syscall.ENOSPC) {
			return
		}
		h.must(err)
		h.must(file.Close())
	}
}

// LeaveOnDisk makes room for n bytes on a disk that FillDisk filled.
func (h *Host) LeaveOnDisk(n int64) {
	h.t.Helper()
	info, err := os.Stat(h.Data(filler))
	h.must(err)
	h.must(os.Truncate(h.Data(filler), info.Size()-n))
}

// FreeDisk removes what FillDisk or FillInodes wrote.
func (h *Host) FreeDisk() {
	h.t.Helper()
	h.must(os.RemoveAll(h.Data(filler)))
}

// Wipe removes all that a killed host has written, as if it was installed again. Boot comes next.
func (h *Host) Wipe() {
	h.t.Helper()
	if h.vm.Up() {
		h.t.Fatalf("wiping %s: it is up; kill it first", h.Name)
	}
	for _, dir := range []string{h.Data(), filepath.Join(h.dir, "kubelet"), filepath.Dir(h.vm.Upper())} {
		entries, err := os.ReadDir(dir)
		h.must(err)
		for _, e := range entries {
			h.must(os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
}
