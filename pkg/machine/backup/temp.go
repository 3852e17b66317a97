package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/throttle"
)

// tempPattern is for the names of the directories in which snapshots of etcd are taken, beside the backups.
const tempPattern = ".snapshot-*"

// Lock waits until no other process makes or removes backups of this machine, and keeps others out until done is called. dir is that of
// backups that are nowhere else. waits is called if that takes time.
func Lock(ctx context.Context, dir string, waits func()) (done func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the backups: %w", err)
	}
	held := make(chan error, 1)
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		held <- err
	} else {
		waits()
		go func() { held <- unix.Flock(int(f.Fd()), unix.LOCK_EX) }()
	}
	select {
	case err = <-held:
	case <-ctx.Done():
		return nil, fmt.Errorf("another command makes or removes backups: %w", context.Cause(ctx)) // the process ends, and with it the wait
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("locking the backups: %w", err), f.Close())
	}
	return func() { f.Close() }, nil
}

// spare is the part of a file system that stays free beside a backup and its trial. An etcd whose disk is full accepts no writes.
const spare = 0.1

// RoomForTrial is how many bytes the backup of a database of a size, and the etcd that is made of it to try it, need for a moment: the copy of the
// database or the entries, the database that is made of them twice, the backup, and two segments of etcd's log.
func RoomForTrial(size int64) int64 { return 4*size + 128<<20 }

// CheckRoom fails if a number of bytes does not fit into a directory's file system.
func CheckRoom(dir string, need int64) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("reading how much room there is in %s: %w", dir, err)
	}
	if free := int64(fs.Bavail)*fs.Bsize - int64(spare*float64(fs.Blocks))*fs.Bsize; free < need {
		return fmt.Errorf("%d MB are needed in %s, and a tenth of the disk more stays free: make room for %d MB", need>>20, dir, (need-free)>>20)
	}
	return nil
}

// TempDir makes a directory for root only, in which a snapshot of etcd is taken for a backup in dir, and removes those that killed saves have left
// there. done removes it.
func TempDir(dir string) (temp string, done func(), err error) {
	all, err := lock(dir, unix.LOCK_EX)
	if err != nil {
		return "", nil, fmt.Errorf("writing a backup: %w", err)
	}
	defer all.Close()
	removeTemps(dir)
	if temp, err = os.MkdirTemp(dir, tempPattern); err != nil {
		return "", nil, fmt.Errorf("writing a backup: %w", err)
	}
	held, err := lock(temp, unix.LOCK_EX)
	if err != nil {
		os.RemoveAll(temp)
		return "", nil, fmt.Errorf("writing a backup: %w", err)
	}
	return temp, func() {
		_ = throttle.RemoveAll(temp)
		held.Close()
	}, nil
}

// RemoveLeft removes what killed restores have left: the data that was not put in place yet, and downloads of backups. Both have the cluster's keys. The
// data directory is locked, so that no restore is at work. It fails if another process has the lock of it that a download begins with, which any user can take.
func RemoveLeft(dirs paths.Dirs) error {
	all, err := lock(dirs.Data, unix.LOCK_EX|unix.LOCK_NB)
	if err != nil {
		return err
	}
	defer all.Close()
	removeTemps(dirs.Data)
	return removeTree((&Restore{dirs: dirs}).staging())
}

// RemoveUnfinished removes what killed saves to a file have left beside it, while Lock keeps others from saving. In a directory such as /root others can
// have files of such names.
func RemoveUnfinished(file string) (err error) {
	for _, path := range append(atomicfile.Unfinished(file), atomicfile.Unfinished(file+noteSuffix)...) {
		if begun(path) {
			err = errors.Join(err, os.Remove(path))
		}
	}
	return err
}

// begun reports whether a file is this user's, and is empty or begins as a backup or a note does.
func begun(path string) bool {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0) // in a directory such as /tmp others can put a pipe there
	if err != nil {
		return false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Mode() != 0o600 || !own(info) {
		return false
	}
	start := make([]byte, len(ageMagic))
	n, _ := io.ReadFull(f, start)
	text := string(start[:n])
	return n == 0 || strings.HasPrefix(text, ageMagic) || strings.HasPrefix(text, zstdMagic) || strings.HasPrefix(text, "{") && strings.Contains(path, noteSuffix)
}

// own reports whether a file is this process' user's.
func own(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}

// zstdMagic begins what zstd has compressed.
const zstdMagic = "\x28\xb5\x2f\xfd"

// removeTemps removes the directories of TempDir in dir that no process uses, while that is locked.
func removeTemps(dir string) {
	left, _ := filepath.Glob(filepath.Join(dir, tempPattern))
	for _, path := range left {
		removeLeft(path)
	}
}

// removeLeft removes a directory of TempDir that no process uses. In a directory such as /tmp others can have some of the same name.
func removeLeft(path string) {
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != fs.ModeDir|0o700 || !own(info) {
		return
	}
	files, err := os.ReadDir(path)
	if err != nil {
		return
	}
	for _, f := range files {
		if !strings.HasPrefix(strings.TrimPrefix(f.Name(), "."), "db") { // unfinished files begin with a dot
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
