package localpath

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

func deviceOf(info fs.FileInfo) uint64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(s.Dev)
	}
	return 0
}

// blocksOf returns the bytes that a file takes on the disk.
func blocksOf(info fs.FileInfo) int64 {
	const block = 512 // whatever the file system's is
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Blocks * block
	}
	return info.Size()
}

// Free returns how many bytes can be written below a directory, which need not exist yet.
func Free(dir string) (uint64, error) {
	var s unix.Statfs_t
	for {
		err := unix.Statfs(dir, &s)
		if err == nil {
			return s.Bavail * uint64(s.Bsize), nil
		}
		if err != unix.ENOENT || dir == "/" {
			return 0, fmt.Errorf("looking for room in %s: %w", dir, err)
		}
		dir = filepath.Dir(dir)
	}
}
