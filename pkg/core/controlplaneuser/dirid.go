package controlplaneuser

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// idSuffix is that of the file beside the copy of a tree that has the ID of the original directory.
const idSuffix = ".id"

// DirID identifies a directory by its inode and time of birth: neither a copy nor another file system mounted there has
// them, and a restart changes neither. Where there is no time of birth, the file system's identifier takes its place; the number
// of the device would not do, because it may be another one after a reboot. The ID of a copy is that of its original.
func DirID(dir string) (string, error) {
	if id, err := os.ReadFile(dir + idSuffix); err == nil {
		if len(id) == 0 {
			return "", fmt.Errorf("the copy of the directory %s is being made", dir)
		}
		return string(id), nil
	}
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, dir, 0, unix.STATX_INO|unix.STATX_BTIME, &st); err != nil {
		return "", fmt.Errorf("reading the directory %s: %w", dir, err)
	}
	if st.Mask&unix.STATX_BTIME == 0 {
		var fs unix.Statfs_t
		if err := unix.Statfs(dir, &fs); err != nil {
			return "", fmt.Errorf("reading the file system of %s: %w", dir, err)
		}
		return fmt.Sprintf("%d on %x", st.Ino, fs.Fsid.Val), nil
	}
	return fmt.Sprintf("%d of %d.%09d", st.Ino, st.Btime.Sec, st.Btime.Nsec), nil
}

// dirID is DirID, or "" for a directory that cannot be read.
func dirID(dir string) string {
	id, _ := DirID(dir)
	return id
}
