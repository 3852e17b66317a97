package payload

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// Prefetch unpacks this executable's payload for a later Unpack. A running coracle of another version keeps its payload.
func Prefetch(ctx context.Context, dirs paths.Dirs, progress Progress) error {
	p, ok, err := own()
	if err != nil {
		return err
	}
	if !ok {
		return errors.New("this build of coracle has no payload; `make build` makes one that has everything")
	}
	return p.prefetch(ctx, dirs, progress)
}

func (p payload) prefetch(ctx context.Context, dirs paths.Dirs, progress Progress) error {
	s := store{dirs.Payloads()}
	lock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	return s.ensure(ctx, p, false, progress)
}

// heldName is the file in a store with the names of payloads that are kept although nothing runs from them, one per line.
const heldName = ".held"

// Hold keeps the payload of dirs.Bin() until Release, because a rollback may need it.
func Hold(dirs paths.Dirs) error {
	target, err := os.Readlink(dirs.Bin())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("finding the payload in use: %w", err)
	}
	return atomicfile.Write(filepath.Join(dirs.Payloads(), heldName), []byte(filepath.Base(target)+"\n"), 0o600)
}

// Release ends Hold. The next Unpack removes the payload unless it is in use.
func Release(dirs paths.Dirs) { _ = os.Remove(filepath.Join(dirs.Payloads(), heldName)) }

// held reports whether a payload is kept.
func (s store) held(sum string) bool {
	text, err := os.ReadFile(filepath.Join(s.root, heldName))
	return err == nil && slices.Contains(strings.Fields(string(text)), sum)
}
