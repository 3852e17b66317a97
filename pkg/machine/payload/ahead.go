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

// Ahead unpacks this executable's payload to where Unpack will find it, and leaves what a running coracle of another
// version uses as it is.
func Ahead(ctx context.Context, dirs paths.Dirs, progress Progress) error {
	p, ok, err := own()
	if err != nil {
		return err
	}
	if !ok {
		return errors.New("this build of coracle has no payload; `make build` makes one that has everything")
	}
	return p.ahead(ctx, dirs, progress)
}

func (p payload) ahead(ctx context.Context, dirs paths.Dirs, progress Progress) error {
	s := store{dirs.Payloads()}
	unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return s.ensure(ctx, p, progress)
}

// heldName is the file in a store that names payloads which are kept though nothing runs out of them, one a line.
const heldName = ".held"

// Hold keeps the payload that dirs.Bin() is, until Release: the version that uses it may come back.
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

// Release lets go what Hold kept. The next Unpack removes it, unless it is in use.
func Release(dirs paths.Dirs) { _ = os.Remove(filepath.Join(dirs.Payloads(), heldName)) }

// held reports whether a payload is kept.
func (s store) held(sum string) bool {
	text, err := os.ReadFile(filepath.Join(s.root, heldName))
	return err == nil && slices.Contains(strings.Fields(string(text)), sum)
}
