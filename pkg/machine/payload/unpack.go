package payload

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/state"
)

// Progress is called with the number of bytes that have been read, and the total.
type Progress func(done, total int64)

// Unpack makes dirs.Bin() lead to a whole copy of this executable's payload. That takes a millisecond if it exists, and the first
// time after a boot as long as reading it. A damaged copy is replaced. Payloads of other versions are removed when no process runs their programs. progress may be nil.
func Unpack(ctx context.Context, dirs paths.Dirs, progress Progress) error {
	p, ok, err := own()
	if err != nil {
		return err
	}
	if !ok {
		dir, err := elsewhere()
		if err != nil {
			return err
		}
		return point(dirs.Bin(), dir)
	}
	return p.unpack(ctx, dirs, progress)
}

// Borrow is Unpack for an ephemeral data directory: dirs.Bin() leads to the copy of Locate, which commands of this user share,
// or to a copy in the data directory if that is not possible.
func Borrow(ctx context.Context, dirs paths.Dirs, progress Progress) error {
	dir, err := Locate(ctx, dirs, progress)
	if err != nil {
		return Unpack(ctx, dirs, progress)
	}
	return point(dirs.Bin(), dir)
}

func (p payload) unpack(ctx context.Context, dirs paths.Dirs, progress Progress) error {
	s := store{dirs.Payloads()}
	lock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	// The first use after a boot reads all files, as the machine may have been off for long, or have lost its power.
	compared := p.sum + " " + state.BootID()
	last, _ := os.ReadFile(dirs.PayloadCompared())
	if err := s.ensure(ctx, p, string(last) != compared, progress); err != nil {
		return err
	}
	if err := atomicfile.WriteVolatile(dirs.PayloadCompared(), []byte(compared), 0o644); err != nil {
		return err
	}
	target, err := filepath.Rel(filepath.Dir(dirs.Bin()), s.dir(p.sum))
	if err != nil {
		return err
	}
	if err := point(dirs.Bin(), target); err != nil {
		return err
	}
	s.prune(p.sum)
	return nil
}

// Locate returns a directory with this executable's payload, for a command. It does not change dirs.Bin(), which a running
// coracle uses. The directory is the copy in the data directory if it is of this version and can be read, otherwise one in the
// user's cache directory, which is unpacked at first use.
func Locate(ctx context.Context, dirs paths.Dirs, progress Progress) (string, error) {
	p, ok, err := own()
	if err != nil {
		return "", err
	}
	if !ok {
		return elsewhere()
	}
	return p.locate(ctx, dirs, Cache(), progress)
}

func (p payload) locate(ctx context.Context, dirs paths.Dirs, cache string, progress Progress) (string, error) {
	installed := store{dirs.Payloads()}
	if installed.whole(p.sum, false) {
		return installed.dir(p.sum), nil
	}
	if cache == "" {
		return "", fmt.Errorf("finding a directory to unpack to: %s has no payload of this version, and neither HOME nor "+
			"XDG_CACHE_HOME is set", installed.root)
	}
	s := store{cache}
	if s.whole(p.sum, false) {
		return s.dir(p.sum), nil
	}
	lock, err := s.lock(ctx)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := s.ensure(ctx, p, false, progress); err != nil {
		return "", err
	}
	s.prune(p.sum)
	return s.dir(p.sum), nil
}

// point makes link a symbolic link to target, in one step if it is one to something else.
func point(link, target string) error {
	if old, err := os.Readlink(link); err == nil && old == target {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
		return fmt.Errorf("making directory for %s: %w", link, err)
	}
	temp := fmt.Sprintf("%s.%d", link, os.Getpid())
	_ = os.Remove(temp) // left by a process with the same PID
	if err := os.Symlink(target, temp); err != nil {
		return fmt.Errorf("linking to the payload: %w", err)
	}
	if err := os.Rename(temp, link); err != nil {
		os.Remove(temp)
		return fmt.Errorf("linking to the payload: %w", err)
	}
	return atomicfile.SyncDir(filepath.Dir(link))
}
