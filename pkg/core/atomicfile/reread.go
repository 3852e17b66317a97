package atomicfile

import (
	"os"

	"golang.org/x/sys/unix"
)

// Reread makes the kernel read a file from the disk again. If a write has failed, the kernel keeps what should have been written and takes
// it for safe, so that only who asked at the time knows of it; see fsync(2).
func Reread(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil { // only what is on the disk can be read again
		return err
	}
	return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}
