// Package fsquota limits the size of directories with the project quotas of ext4 and xfs. It keeps no state of its own: the
// file system stores the project number of each directory, and the limit of each project.
package fsquota

import (
	"errors"
	"fmt"
	"hash/fnv"
	"os"

	"golang.org/x/sys/unix"
)

// FS is the file system that a directory is on.
type FS struct {
	kernel kernel
	kind   string
	why    string // not enforced
}

// kernel are the calls to the kernel. Sizes are in bytes.
type kernel interface {
	enforces() error // nil if limits of projects hold
	project(dir *os.File) (uint32, error)
	setProject(dir *os.File, id uint32) error
	usage(id uint32) (Usage, error)
	setLimit(id uint32, bytes uint64) error
	close() error
}

// Usage is the usage and the limit of a project in bytes; 0 is no limit.
type Usage struct{ Used, Limit uint64 }

// Open opens the file system of a directory, which must exist. The caller closes it.
func Open(dir string) (*FS, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("looking at the file system: %w", err)
	}
	return open(linux{f}, kindOf(f)), nil
}

func open(k kernel, kind string) *FS {
	fs := &FS{kernel: k, kind: kind}
	if err := k.enforces(); err != nil {
		fs.why = kind + " without project quotas"
	}
	return fs
}

// Close closes the file system.
func (fs *FS) Close() error { return fs.kernel.close() }

// Enforced reports whether the file system enforces limits.
func (fs *FS) Enforced() bool { return fs.why == "" }

// String says whether limits are enforced, and why not: "enforced (xfs)", "not enforced: ext4 without project quotas".
func (fs *FS) String() string {
	if fs.Enforced() {
		return "enforced (" + fs.kind + ")"
	}
	return "not enforced: " + fs.why
}

// ErrNotEnforced says that the file system does not enforce limits.
var ErrNotEnforced = errors.New("there is no limit to change")

// The range of project numbers that this package uses. Administrators usually count from 1 and the kubelet from 1048577,
// below the range.
const (
	firstID = 1 << 30
	lastID  = 1<<31 - 1
	tries   = 1000
)

// Limit gives an empty directory a project of its own, unless it has one of this package, and sets its limit in bytes. Files
// that are created in the directory belong to the project. The number that is tried first depends on name.
func (fs *FS) Limit(dir *os.File, name string, bytes uint64) error {
	if !fs.Enforced() {
		return ErrNotEnforced
	}
	id, err := fs.kernel.project(dir)
	if err != nil {
		return fmt.Errorf("reading the project of %s: %w", dir.Name(), err)
	}
	if !isOwn(id) {
		if id, err = fs.unused(name); err != nil {
			return err
		}
		// The limit comes first: a number with a limit is taken.
		if err := fs.setLimit(id, bytes); err != nil {
			return err
		}
		if err := fs.kernel.setProject(dir, id); err != nil {
			return fmt.Errorf("giving %s a project: %w", dir.Name(), err)
		}
		return nil
	}
	return fs.setLimit(id, bytes)
}

// Resize changes the limit of a directory that has a project.
func (fs *FS) Resize(dir *os.File, bytes uint64) error {
	id, err := fs.own(dir)
	if err != nil {
		return err
	}
	return fs.setLimit(id, bytes)
}

// Release removes the limit of a directory that Limit has set, so that the project number can be used again.
func (fs *FS) Release(dir *os.File) error {
	if !fs.Enforced() {
		return nil
	}
	id, err := fs.kernel.project(dir)
	if err != nil || !isOwn(id) {
		return nil // it has none
	}
	return fs.setLimit(id, 0)
}

func (fs *FS) own(dir *os.File) (uint32, error) {
	if !fs.Enforced() {
		return 0, ErrNotEnforced
	}
	id, err := fs.kernel.project(dir)
	if err == nil && !isOwn(id) {
		err = fmt.Errorf("it has none of coracle's: %w", ErrNotEnforced)
	}
	if err != nil {
		return 0, fmt.Errorf("reading the project of %s: %w", dir.Name(), err)
	}
	return id, nil
}

func (fs *FS) setLimit(id uint32, bytes uint64) error {
	if err := fs.kernel.setLimit(id, bytes); err != nil {
		return fmt.Errorf("setting the limit of project %d: %w", id, err)
	}
	return nil
}

// unused returns a project number that is not in use.
func (fs *FS) unused(name string) (uint32, error) {
	hash := fnv.New32a()
	hash.Write([]byte(name))
	id := firstID + hash.Sum32()%(lastID-firstID+1)
	for range tries {
		u, err := fs.kernel.usage(id)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) || err == nil && u == (Usage{}) {
			return id, nil
		}
		if err != nil {
			return 0, fmt.Errorf("looking for a project that nothing has: %w", err)
		}
		if id++; id > lastID {
			id = firstID
		}
	}
	return 0, fmt.Errorf("looking for a project that nothing has: none of %d after %d", tries, id-tries)
}

func isOwn(id uint32) bool { return id >= firstID && id <= lastID }
