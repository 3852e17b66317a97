package localcluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/state"
)

// Store is the directory that holds the clusters of a machine, each in a directory of its name.
type Store struct{ Dir string }

// Files of a cluster.
func (s Store) dir(name string) string        { return filepath.Join(s.Dir, name) }
func (s Store) recordFile(name string) string { return filepath.Join(s.dir(name), "cluster.json") }

// realRecordFile is the absolute path of a cluster's record without links, by which all processes of the machine name the cluster.
func (s Store) realRecordFile(name string) string {
	path, err := filepath.Abs(s.recordFile(name))
	if err != nil {
		return s.recordFile(name)
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		return filepath.Join(dir, filepath.Base(path))
	}
	return path
}

func (s Store) tokenFile(name string) string  { return filepath.Join(s.dir(name), "token") }
func (s Store) executable(name string) string { return filepath.Join(s.dir(name), "coracle") }
func (s Store) logs(name string) string       { return filepath.Join(s.dir(name), "log") }
func (s Store) holderLog(name string) string  { return filepath.Join(s.logs(name), "holder.log") }

// Kubeconfig is the cluster's own kubeconfig.
func (s Store) Kubeconfig(name string) string { return filepath.Join(s.dir(name), "kubeconfig.yaml") }

// NodeLog is the log of coracle on a node.
func (s Store) NodeLog(name, node string) string { return filepath.Join(s.logs(name), node+".log") }

func (s Store) hosts(name string) string { return filepath.Join(s.dir(name), "hosts") }

func (s Store) host(name, node string, elem ...string) string {
	return filepath.Join(append([]string{s.hosts(name), node}, elem...)...)
}

// NotFoundError says that there is no cluster of that name.
type NotFoundError struct {
	Name  string
	Names []string // of the existing clusters
}

func (e *NotFoundError) Error() string {
	if len(e.Names) == 0 {
		return fmt.Sprintf("there is no local cluster %s, and no other one; coracle up makes one", e.Name)
	}
	return fmt.Sprintf("there is no local cluster %s; there is %s", e.Name, strings.Join(e.Names, ", "))
}

func isNotFound(err error) bool { return errors.As(err, new(*NotFoundError)) }

// Load reads the record of a cluster. The state is Dead if the holder is gone, whatever the file says.
func (s Store) Load(name string) (Record, error) {
	var r Record
	found, err := atomicfile.ReadJSON(s.recordFile(name), &r)
	switch {
	case err != nil:
		return Record{}, fmt.Errorf("reading the record of cluster %s: %w", name, err)
	case !found:
		return Record{}, &NotFoundError{name, s.names()}
	}
	if !r.Holder.alive() && !r.Holder.none() {
		r.State = Dead
	}
	return r, nil
}

// save writes a cluster's record.
func (s Store) save(r Record) error {
	if err := atomicfile.WriteJSON(s.recordFile(r.Name), r, 0o600); err != nil {
		return fmt.Errorf("writing the record of cluster %s: %w", r.Name, err)
	}
	return nil
}

// names lists the clusters that have a directory.
func (s Store) names() (names []string) {
	entries, _ := os.ReadDir(s.Dir) // none if it does not exist
	for _, e := range entries {
		if e.IsDir() && validName.MatchString(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names
}

// List reads all records, the oldest cluster first. The error names the records that cannot be read.
func (s Store) List() ([]Record, error) {
	var all []Record
	var errs []error
	for _, name := range s.names() {
		r, err := s.Load(name)
		switch {
		case isNotFound(err):
			continue // a directory without a record
		case err != nil:
			errs = append(errs, err)
		default:
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b Record) int { return a.Created.Compare(b.Created) })
	return all, errors.Join(errs...)
}

// lockPoll is the pause between attempts to lock.
const lockPoll = 50 * time.Millisecond

// lock keeps other processes from making or removing clusters until unlock.
func (s Store) lock(ctx context.Context) (unlock func(), err error) { return lockDir(ctx, s.Dir) }

const lockFile = ".lock"

// lockDir makes a directory, if need be, and locks it against other processes that do the same.
func lockDir(ctx context.Context, dir string) (unlock func(), err error) {
	path := filepath.Join(dir, lockFile)
	for {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("locking %s: %w", dir, err)
		}
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o600)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed by the last holder just now
		}
		if err != nil {
			return nil, fmt.Errorf("locking %s: %w", dir, err)
		}
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil && sameFile(f, path) {
			return func() { f.Close() }, nil
		}
		f.Close()
		if err != nil && !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		if lifecycle.Sleep(ctx, lockPoll) != nil {
			return nil, fmt.Errorf("waiting for another coracle that makes or removes a cluster (lock %s): %w", path, context.Cause(ctx))
		}
	}
}

// sameFile reports whether the path still names the open file: removeLockedDir may have removed it.
func sameFile(f *os.File, path string) bool {
	a, errA := f.Stat()
	b, errB := os.Stat(path)
	return errA == nil && errB == nil && os.SameFile(a, b)
}

// tidy removes what killed processes have left of snapshots and of removed clusters, and the directory for clusters if it holds none. The caller holds the lock.
func (s Store) tidy() {
	s.removeRemoved()
	_ = s.removeParts(s.hasEnded)
	_ = os.Remove(s.snapshots()) // unless it holds some
	if len(s.names()) == 0 {
		removeLockedDir(s.Dir)
	}
}

// removeLockedDir removes files, the lock file, and the directory if nothing else is in it. The caller holds the lock and
// has finished everything else: another process may lock a new file as soon as this one is removed.
func removeLockedDir(dir string, files ...string) {
	for _, path := range append(files, filepath.Join(dir, lockFile), dir) {
		_ = os.Remove(path)
	}
}

// Process identifies a process, even after its PID was reused.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks after boot
	Boot  string `json:"boot"`
}

// describeProcess identifies a running process of this machine.
func describeProcess(pid int) (Process, error) {
	ticks, err := state.StartTicks(pid)
	return Process{PID: pid, Start: ticks, Boot: state.BootID()}, err
}

func (p Process) none() bool { return p.PID == 0 }

func (p Process) alive() bool {
	ticks, err := state.StartTicks(p.PID)
	return err == nil && ticks == p.Start && p.Boot == state.BootID()
}
