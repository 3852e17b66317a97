package containerd

import (
	"errors"
	"fmt"

	"github.com/coracle-dev/coracle/pkg/core/boltfile"
)

// checkDatabases fails if the disk has changed one of containerd's databases since the last run, or if bbolt would panic when it reads it.
func (c Containerd) checkDatabases() error {
	for _, db := range c.Databases {
		_, err := boltfile.Check(db, boltfile.SealOf(db))
		if errors.Is(err, boltfile.ErrDamaged) {
			return c.damaged(db, err)
		}
		if err != nil {
			return fmt.Errorf("reading its database %s: %w", db, err)
		}
	}
	return nil
}
