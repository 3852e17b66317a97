package front

import (
	"errors"
	"io/fs"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/core/boltfile"
)

// sealDatabases notes what containerd's databases are, now that no process has them open.
func (f *front) sealDatabases() {
	for _, db := range f.cfg.Dirs.ContainerdDatabases() {
		if err := boltfile.Seal(db, boltfile.SealOf(db)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			logrus.WithError(err).Debug("noting the checksum of a database")
		}
	}
}
