package member

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/sirupsen/logrus"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
)

// reread makes the kernel read this member's files from the disk again. If a write has failed, the kernel keeps what should have been
// written and takes it for safe: a member that starts again would trust its own files, acknowledge more, and lose all of it in
// the next power cut, because what was acknowledged follows upon a gap. A member that reads the disk finds the end of what is safe, and
// nothing behind it was acknowledged. Each start does this, because nothing else tells for sure that no write has failed since the last one.
func (e *Etcd) reread() error {
	if e.Volatile {
		return nil
	}
	var files []string
	for _, pattern := range []string{"wal/*.wal", "snap/*"} {
		found, err := filepath.Glob(filepath.Join(e.Dir, "member", pattern))
		if err != nil {
			return err
		}
		files = append(files, found...)
	}
	for _, name := range files {
		if err := atomicfile.Reread(name); err != nil {
			return fmt.Errorf("writing what is left of the last run to the disk: %w", err)
		}
	}
	return nil
}

// rebuild moves a database that is not one away if etcd can make it again: the log has all that was ever written, or nothing was ever
// written. A disk that fails or loses its power while the first database is being made leaves such a one.
func (e *Etcd) rebuild(cause error) (moved bool, err error) {
	dir := filepath.Join(e.Dir, "member", "snap")
	db := filepath.Join(dir, "db")
	info, err := os.Stat(db)
	if err != nil || !errors.Is(cause, berrors.ErrInvalid) {
		return false, nil
	}
	// etcd deletes the begin of the log after a snapshot, and the log of a member that joined or was restored begins with one.
	_, err = os.Stat(filepath.Join(e.Dir, "member", "wal", "0000000000000000-0000000000000000.wal"))
	fresh := !e.hasData() && info.Size() <= almostEmpty
	if err != nil && !fresh {
		return false, nil
	}
	if snapshots, err := filepath.Glob(filepath.Join(dir, "*.snap")); err != nil || len(snapshots) > 0 {
		return false, err
	}
	aside := fmt.Sprintf("%s.damaged-%d", db, time.Now().Unix())
	logrus.WithField("component", "etcd").Warnf("etcd's database is damaged. It is made again, because the log has everything; the damaged one is now %s", aside)
	return true, os.Rename(db, aside)
}
