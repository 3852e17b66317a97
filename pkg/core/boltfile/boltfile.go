// Package boltfile finds damage in the file of a bbolt database that nothing has open. The pages of such a file have no checksums, and
// bbolt panics, in goroutines of its own, when it finds one that cannot be.
//
// When a database is closed in good order, Seal notes a sum of all pages in use beside it, with which Check compares them before
// the next use. After a crash there is no seal, and Check looks at the structure alone.
package boltfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
)

// ErrDamaged is the error of a database that is not what was written.
var ErrDamaged = errors.New("the disk or the memory has changed it since it was written")

// SealOf is where the seal of a database is, unless another place is better.
func SealOf(path string) string { return path + ".sum" }

// Seal notes the sum of a database in the file seal. It fails while a program has the database open.
func Seal(path, seal string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil { // bbolt holds an exclusive lock
		return fmt.Errorf("%s is in use: %w", path, err)
	}
	s, err := inspect(f)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return atomicfile.WriteSummed(seal, fmt.Sprintf("%d %d", s.transaction, s.sum), 0o600)
}

// Check fails with ErrDamaged if the database differs from what was sealed, or without a seal if its structure is impossible. It
// removes the seal of a good one, because the next use changes the database, and reports whether there was one. What is no
// database at all, bbolt itself refuses.
func Check(path, seal string) (sealed bool, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	text, sealed, err := atomicfile.ReadSummed(seal)
	if err != nil {
		return false, err
	}
	now, err := inspect(f)
	if errors.Is(err, errNoDatabase) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", path, err)
	}
	if sealed {
		var then summary
		if _, err := fmt.Sscanf(text, "%d %d", &then.transaction, &then.sum); err != nil {
			return false, fmt.Errorf("reading %s: %w", seal, err)
		}
		sealed = now.transaction <= then.transaction // otherwise a version that knows no seals has used it
		if sealed && now != then {
			return false, fmt.Errorf("%s: %w; without the file %s it is used nevertheless", path, ErrDamaged, seal)
		}
	}
	if err := os.Remove(seal); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return sealed, nil
		}
		return false, err
	}
	// A seal that comes back when the power is cut would describe an older database.
	return sealed, atomicfile.SyncDir(filepath.Dir(seal))
}
