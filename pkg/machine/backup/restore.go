package backup

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/ledger"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/process"
	"github.com/coracle-dev/coracle/pkg/core/supervise"
)

// Restore replaces the data of a stopped server with the content of a backup.
type Restore struct {
	// Manifest is the backup's.
	Manifest Manifest
	// Former is the directory with the data that was replaced; "" if there was none.
	Former string
	// Machine lists the files outside the data directory that were missing and have been restored.
	Machine []string

	dirs paths.Dirs
	file string
	keys Keys
	lock *os.File
	swap func(one, two string) error // replaced in tests
}

// NewRestore reads the manifest of a backup that keys open, and locks the data directory, so that coracle cannot start until Close.
func NewRestore(dirs paths.Dirs, file string, keys Keys) (*Restore, error) {
	m, err := Read(file, keys)
	if err != nil {
		return nil, err
	}
	if err := ledger.Open(dirs).MkdirAll(dirs.Data, 0o755); err != nil {
		return nil, err
	}
	lock, err := lockStopped(dirs)
	if err != nil {
		return nil, err
	}
	return &Restore{Manifest: m, dirs: dirs, file: file, keys: keys, lock: lock, swap: swap}, nil
}

// CheckStopped fails if coracle runs here.
func CheckStopped(dirs paths.Dirs) error {
	lock, err := lockStopped(dirs)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a new machine
	}
	if err != nil {
		return err
	}
	return lock.Close()
}

// lockStopped locks the data directory as coracle does while it runs.
func lockStopped(dirs paths.Dirs) (*os.File, error) {
	lock, err := supervise.Lock(dirs.Lock())
	var held *supervise.HeldError
	if errors.As(err, &held) {
		if restores(held.PID) {
			return nil, fmt.Errorf("another restore is at work here (pid %d): wait for it", held.PID)
		}
		return nil, fmt.Errorf("coracle runs here (pid %d): stop it first, as with systemctl stop coracle; pods run on", held.PID)
	}
	return lock, err
}

// restores reports whether a process is a restore.
func restores(pid int) bool {
	p, err := process.Read(fmt.Sprintf("/proc/%d", pid))
	at := slices.Index(p.Args, "snapshot")
	return err == nil && at > 0 && slices.Contains(p.Args[at:min(at+2, len(p.Args))], "restore")
}

// Close lets coracle start again.
func (r *Restore) Close() { r.lock.Close() }

// Replaces reports whether this server has data, which Run replaces.
func (r *Restore) Replaces() bool {
	_, err := os.Stat(r.dirs.Etcd())
	return err == nil
}

func (r *Restore) server() string  { return filepath.Dir(r.dirs.Etcd()) }
func (r *Restore) former() string  { return r.server() + ".before-restore" }
func (r *Restore) staging() string { return r.server() + ".restoring" }

// Run prepares the server's directory next to its place and exchanges the two in one step. restoreEtcd makes etcd's data
// directory out of the backup's Database, for the member with the given name; node is this machine's node name, "" for the
// backup's. Former data of an earlier restore is removed before the exchange. Nothing is removed after it, and nothing
// that is on another mount ever is.
func (r *Restore) Run(node string, restoreEtcd func(snapshot, dir, member string) error) error {
	if err := r.checkMounts(); err != nil {
		return err
	}
	if err := removeTree(r.staging()); err != nil {
		return err
	}
	// The first call gets errors of writes before, of which nobody has been told; the one after our writes gets those since.
	disk, err := os.Open(filepath.Dir(r.staging()))
	if err != nil {
		return err
	}
	defer disk.Close()
	_ = syncAll(disk)
	if r.Manifest, r.Machine, err = Extract(r.file, r.keys, r.staging(), "/"); err != nil {
		return errors.Join(fmt.Errorf("unpacking the backup: %w", err), removeTree(r.staging()))
	}
	fresh, snapshot := filepath.Join(r.staging(), "server"), filepath.Join(r.staging(), Database)
	if err := restoreEtcd(snapshot, filepath.Join(fresh, filepath.Base(r.dirs.Etcd())), cmp.Or(node, r.Manifest.Node)); err != nil {
		return errors.Join(err, removeTree(r.staging()))
	}
	if err := syncAll(disk); err != nil { // etcd's tool does not sync directories
		return errors.Join(fmt.Errorf("writing the restored data: %w", err), removeTree(r.staging()))
	}
	if err := r.trySwap(); err != nil {
		return errors.Join(err, removeTree(r.staging()))
	}
	if err := r.removeFormer(); err != nil {
		return errors.Join(err, removeTree(r.staging()))
	}
	if err := r.exchange(fresh); err != nil {
		if r.Former == "" { // nothing was exchanged; what was unpacked has the cluster's keys
			err = errors.Join(err, removeTree(r.staging()))
		}
		return err
	}
	return errors.Join(os.Remove(snapshot), os.Remove(r.staging()))
}

// checkMounts fails if the server's directory, or anything in it but the backups, is a mount point: the exchange would leave
// the data that is mounted there where it is, and the next mount would hide what has been restored.
func (r *Restore) checkMounts() error {
	mounts, err := mountsIn(r.server())
	if err != nil {
		return err
	}
	for _, m := range mounts {
		if within, err := filepath.Rel(filepath.Base(r.dirs.Snapshots()), m); err != nil || !filepath.IsLocal(within) {
			path := filepath.Join(r.server(), m)
			return fmt.Errorf("%s is a mount point, and a restore replaces %s as a whole: unmount it, restore, and move what is then in %s "+
				"to the file system that you mount there, before you start coracle", path, r.server(), path)
		}
	}
	return nil
}

// syncAll makes everything on the file system of an open file safe. Sync would wait for all other file systems too, and return no error.
func syncAll(on *os.File) error { return unix.Syncfs(int(on.Fd())) }

// swap exchanges two directories in one step.
func swap(one, two string) error {
	return unix.Renameat2(unix.AT_FDCWD, one, unix.AT_FDCWD, two, unix.RENAME_EXCHANGE)
}

// trySwap fails if the file system cannot exchange directories. It is called before former data is removed.
func (r *Restore) trySwap() error {
	one, two := filepath.Join(r.staging(), "one"), filepath.Join(r.staging(), "two")
	if err := errors.Join(os.Mkdir(one, 0o700), os.Mkdir(two, 0o700)); err != nil {
		return err
	}
	if err := r.swap(one, two); err != nil {
		return fmt.Errorf("trying to exchange directories in %s: %w", r.dirs.Data, err)
	}
	return errors.Join(os.Remove(one), os.Remove(two))
}

// removeFormer removes the data that an earlier restore replaced, but no backups in it: a restore that failed half-way may
// have left them there.
func (r *Restore) removeFormer() error {
	if err := r.moveSnapshots(); err != nil {
		return err
	}
	left := filepath.Join(r.former(), filepath.Base(r.dirs.Snapshots()))
	entries, err := os.ReadDir(left)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(entries) > 0 {
		return fmt.Errorf("%s has backups that an earlier restore left there: move them to %s first", left, r.dirs.Snapshots())
	}
	return removeTree(r.former())
}

// exchange puts the new directory in the place of the old one, which becomes the former one in the same step.
func (r *Restore) exchange(fresh string) error {
	_, err := os.Stat(r.server())
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.Rename(fresh, r.server()); err != nil {
			return fmt.Errorf("putting the restored data in place: %w", err)
		}
		return atomicfile.SyncDir(r.dirs.Data)
	}
	if err := os.Rename(fresh, r.former()); err != nil {
		return fmt.Errorf("putting the restored data in place: %w", err)
	}
	if err := r.swap(r.former(), r.server()); err != nil {
		return errors.Join(fmt.Errorf("putting the restored data in place: %w", err), os.Rename(r.former(), fresh))
	}
	r.Former = r.former()
	if err := r.moveSnapshots(); err != nil {
		return fmt.Errorf("moving backups from %s to %s, after the restored data was put in place: %w", r.Former, r.dirs.Snapshots(), err)
	}
	return atomicfile.SyncDir(r.dirs.Data)
}

// moveSnapshots moves the backups from the former directory to the server's, unless that has some. A mount is moved by
// binding it to its new place, because a mount in a shared one cannot be moved (MS_MOVE).
func (r *Restore) moveSnapshots() error {
	from, to := filepath.Join(r.former(), filepath.Base(r.dirs.Snapshots())), r.dirs.Snapshots()
	if _, err := os.Lstat(from); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	same, err := sameDir(from, to)
	if err != nil {
		return err
	}
	if same { // an earlier call was killed after it had bound the mount
		return unix.Unmount(from, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	}
	if entries, err := os.ReadDir(to); err == nil && len(entries) > 0 {
		return nil
	}
	_ = unix.Rmdir(to) // an empty directory is in the way; everything else stays
	err = os.Rename(from, to)
	if mounted, _ := mountinfo.Mounted(from); !mounted {
		return err
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mounting %s on %s: %w", from, to, err)
	}
	return unix.Unmount(from, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
}

// sameDir reports whether two paths lead to the same directory, as two mounts of one file system do.
func sameDir(one, two string) (bool, error) {
	a, errA := os.Stat(one)
	b, errB := os.Stat(two)
	if errors.Is(errA, fs.ErrNotExist) || errors.Is(errB, fs.ErrNotExist) {
		return false, nil // also a symbolic link that leads nowhere now
	}
	err := errors.Join(errA, errB)
	return err == nil && os.SameFile(a, b), err
}

// removeTree removes a directory and its content, unless there is a mount point in it.
func removeTree(dir string) error {
	mounts, err := mountsIn(dir)
	if err != nil {
		return err
	}
	if len(mounts) > 0 {
		path := filepath.Join(dir, mounts[0])
		return fmt.Errorf("%s is in the way and %s is a mount point: unmount it first", dir, path)
	}
	return os.RemoveAll(dir)
}

// mountsIn lists the mount points at and below a directory, relative to it.
func mountsIn(dir string) (list []string, err error) {
	real, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(real))
	for _, m := range mounts {
		if within, err := filepath.Rel(real, m.Mountpoint); err == nil {
			list = append(list, within)
		}
	}
	return list, err
}
