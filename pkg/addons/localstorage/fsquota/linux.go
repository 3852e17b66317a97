package fsquota

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Constants of linux/fs.h, linux/quota.h and linux/dqblk_xfs.h that golang.org/x/sys lacks.
const (
	fsGetXattr  = 0x801c581f // FS_IOC_FSGETXATTR
	fsSetXattr  = 0x401c5820
	projInherit = 0x200 // FS_XFLAG_PROJINHERIT: what is made in the directory is of its project

	projects   = 2 // PRJQUOTA
	getQuota   = 0x800007
	setQuota   = 0x800008
	getState   = 'X'<<8 + 8 // Q_XGETQSTATV
	stateV1    = 1
	pdqEnforce = 1 << 5 // FS_QUOTA_PDQ_ENFD

	blockLimits = 1 // QIF_BLIMITS
	blockSize   = 1024
)

type fsxattr struct {
	xflags, extsize, nextents, projid, cowextsize uint32
	_                                             [8]byte
}

// dqblk has limits in KiB, and curspace in bytes.
type dqblk struct {
	bhard, bsoft, curspace, ihard, isoft, curinodes, btime, itime uint64
	valid, _                                                      uint32
}

type statv struct {
	version int8
	_       uint8
	flags   uint16
	_       [156]byte
}

// linux implements kernel for the file system of a directory.
type linux struct{ dir *os.File }

func (l linux) close() error { return l.dir.Close() }

func (l linux) enforces() error {
	state := statv{version: stateV1}
	if err := l.quotactl(getState, 0, unsafe.Pointer(&state)); err != nil {
		return err
	}
	if state.flags&pdqEnforce == 0 {
		return errors.New("project quotas are off")
	}
	return nil
}

func (l linux) project(dir *os.File) (uint32, error) {
	var x fsxattr
	err := ioctl(dir, fsGetXattr, &x)
	return x.projid, err
}

func (l linux) setProject(dir *os.File, id uint32) error {
	var x fsxattr
	if err := ioctl(dir, fsGetXattr, &x); err != nil {
		return err
	}
	x.projid, x.xflags = id, x.xflags|projInherit
	return ioctl(dir, fsSetXattr, &x)
}

func (l linux) usage(id uint32) (Usage, error) {
	var q dqblk
	if err := l.quotactl(getQuota, id, unsafe.Pointer(&q)); err != nil {
		return Usage{}, err
	}
	return Usage{Used: q.curspace, Limit: q.bhard * blockSize}, nil
}

func (l linux) setLimit(id uint32, bytes uint64) error {
	blocks := (bytes + blockSize - 1) / blockSize
	q := dqblk{bhard: blocks, bsoft: blocks, valid: blockLimits}
	return l.quotactl(setQuota, id, unsafe.Pointer(&q))
}

// quotactl is the system call quotactl_fd, which takes any file of the file system instead of a block device. It needs Linux 5.14.
func (l linux) quotactl(cmd int, id uint32, arg unsafe.Pointer) error {
	_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, l.dir.Fd(), uintptr(cmd<<8|projects), uintptr(id), uintptr(arg), 0, 0)
	runtime.KeepAlive(l.dir)
	if errno != 0 {
		return errno
	}
	return nil
}

func ioctl(f *os.File, request uintptr, x *fsxattr) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), request, uintptr(unsafe.Pointer(x)))
	runtime.KeepAlive(f)
	if errno != 0 {
		return errno
	}
	return nil
}

// kindOf names a file system.
func kindOf(f *os.File) string {
	var s unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &s); err != nil {
		return "a file system"
	}
	switch s.Type {
	case unix.EXT4_SUPER_MAGIC:
		return "ext4"
	case unix.XFS_SUPER_MAGIC:
		return "xfs"
	case unix.BTRFS_SUPER_MAGIC:
		return "btrfs"
	case unix.TMPFS_MAGIC:
		return "tmpfs"
	case unix.OVERLAYFS_SUPER_MAGIC:
		return "overlayfs"
	}
	return fmt.Sprintf("file system %#x", s.Type)
}
