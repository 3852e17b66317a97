package backup

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// tempPattern is for the names of the directories in which snapshots of etcd are taken, beside the backups.
const tempPattern = ".snapshot-*"

// TempDir makes a directory for root only, in which a snapshot of etcd is taken for a backup in dir, and removes those that killed saves have left
// there. done removes it.
func TempDir(dir string) (temp string, done func(), err error) {
	all, err := lock(dir, unix.LOCK_EX)
	if err != nil {
		return "", nil, fmt.Errorf("writing a backup: %w", err)
	}
	defer all.Close()
	left, _ := filepath.Glob(filepath.Join(dir, tempPattern))
	for _, path := range left {
		removeLeft(path)
	}
	if temp, err = os.MkdirTemp(dir, tempPattern); err != nil {
		return "", nil, fmt.Errorf("writing a backup: %w", err)
	}
	held, err := lock(temp, unix.LOCK_EX)
	if err != nil {
		os.RemoveAll(temp)
		return "", nil, fmt.Errorf("writing a backup: %w", err)
	}
	return temp, func() {
		os.RemoveAll(temp)
		held.Close()
	}, nil
}

// removeLeft removes a directory of TempDir that no process uses. In a directory such as /tmp others can have some of the same name.
func removeLeft(path string) {
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != fs.ModeDir|0o700 {
		return
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || int(stat.Uid) != os.Geteuid() {
		return
	}
	files, err := os.ReadDir(path)
	if err != nil {
		return
	}
	for _, f := range files {
		if !strings.HasPrefix(f.Name(), "db") {
			return
		}
	}
	held, err := lock(path, unix.LOCK_EX|unix.LOCK_NB)
	if err != nil {
		return
	}
	defer held.Close()
	os.RemoveAll(path)
}

// lock locks a directory until it is closed or the process ends.
func lock(dir string, how int) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), how); err != nil {
		f.Close()
		return nil, fmt.Errorf("locking %s: %w", dir, err)
	}
	return f, nil
}
