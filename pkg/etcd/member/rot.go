package member

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/sirupsen/logrus"
	"go.etcd.io/etcd/server/v3/storage/schema"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/boltfile"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// The pages of etcd's database have no checksums. So that a bit which the disk changes is found:
//   - a member that stops in good order seals its database, and compares it at the next start: all of it;
//   - one that runs notes from time to time what its keys and values were at a revision. It compares that when it takes the next note, and
//     at the start after a crash, when there is no seal: all that is older than the note. Without a seal it also looks at the structure, because
//     bbolt panics in goroutines of its own when it opens an impossible one.
//
// Both files are below member, so that they come and go with the data.

func (e *Etcd) database() string   { return filepath.Join(e.Dir, "member", "snap", "db") }
func (e *Etcd) seal() string       { return filepath.Join(e.Dir, "member", "database.sum") }
func (e *Etcd) logChanged() string { return filepath.Join(e.Dir, "member", "log.changed") }
func (e *Etcd) note() string       { return filepath.Join(e.Dir, "member", "keys.sum") }

// checkDatabase compares the database with its seal, before etcd opens it, and reports whether it had one.
func (e *Etcd) checkDatabase() (sealed bool, err error) {
	if e.Volatile {
		return false, nil
	}
	sealed, err = boltfile.Check(e.database(), e.seal())
	if errors.Is(err, boltfile.ErrDamaged) {
		return false, e.explain(err)
	}
	return sealed, err
}

// sealDatabase notes what the closed database is.
func (e *Etcd) sealDatabase() {
	if e.Volatile {
		return
	}
	if err := boltfile.Seal(e.database(), e.seal()); err != nil {
		logrus.WithField("component", "etcd").WithError(err).Warn("noting the checksum of etcd's database failed: only its structure and older values are checked at the next start")
	}
}

// checkLog compares the end of the log with the database, once this member leads: then it has all that was ever applied. A record whose length is 0 or more
// than the file has is to etcd the incomplete end that a power loss left: it drops the record and all behind it (wal.Repair). What the log then lacks but
// the database has was complete, so that the disk has changed it. The next entries would get the numbers of those, and none of them would be applied.
// They are written before this is found, so that the log is long enough after some starts: a file keeps the finding.
func (l life) checkLog() error {
	applied, _ := schema.ReadConsistentIndex(l.server.Server.Backend().ReadTx())
	status, _ := raftStatus()
	if own, leads := status.Progress[status.ID]; leads && status.ID == uint64(l.server.Server.MemberID()) && own.Match < applied {
		text := fmt.Sprintf("etcd's log ends at entry %d, and its database has entries up to %d: the disk has changed the log", own.Match, applied)
		if err := atomicfile.Write(l.logChanged(), []byte(text), 0o600); err != nil {
			return fmt.Errorf("%s; noting it: %w", text, err)
		}
		return l.checkFound()
	}
	return nil
}

// checkFound fails if checkLog has found a change, at an earlier start too.
func (e *Etcd) checkFound() error {
	text, err := os.ReadFile(e.logChanged())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("%s; it is used nevertheless without the file %s", text, e.logChanged())
}

// readNote returns the revision of the note, 0 if there is none, and what it says.
func (e *Etcd) readNote() (revision int64, text string, err error) {
	text, ok, err := atomicfile.ReadSummed(e.note())
	if !ok || err != nil {
		return 0, "", err
	}
	if _, err := fmt.Sscan(text, &revision); err != nil || revision < 0 || revision == math.MaxInt64 {
		return 0, "", nil
	}
	return revision, text, nil
}

// checkNote compares the data with the note, if it says something about this data, and takes the next one.
func (l life) checkNote(ctx context.Context) error {
	former, text, err := l.readNote()
	if err != nil {
		return err
	}
	now, then, err := l.digests(ctx, former)
	if err != nil {
		return err
	}
	if former > now.revision {
		logrus.WithField("component", "etcd").Warnf("etcd has lost the writes of revisions %d to %d: the disk did not keep what it had acknowledged", now.revision+1, former)
	}
	if then != nil && then.String() != text {
		return fmt.Errorf("%w; it was good at revision %d; without the file %s it is used nevertheless", errChanged, former, l.note())
	}
	return atomicfile.WriteSummed(l.note(), now.String(), 0o600)
}

// checkStart compares the data with the note before the member is used, unless the database was sealed, which says more.
func (l life) checkStart(ctx context.Context) error {
	if l.Volatile {
		return nil
	}
	if l.resetting { // it may have lost its last writes, of which the note tells
		if err := os.Remove(l.note()); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	former, _, err := l.readNote()
	if err != nil || former == 0 || l.sealed && former <= l.server.Server.KV().Rev() {
		return err
	}
	lifecycle.WaitingFor(ctx, "the check of etcd's data")
	if err := l.checkNote(ctx); !errors.Is(err, errAgain) {
		return err
	}
	return os.Remove(l.note()) // it may tell of writes that are lost, and whose revisions will be used again
}

const (
	firstNote = 10 * time.Second // after the start, which has other work
	noteEvery = 10 * time.Minute
	noteShare = 500 // the pause is at least this many times as long as the note takes
)

// watchData takes notes until ctx is done, or the data differs from what it was.
func (l life) watchData(ctx context.Context) error {
	if l.Volatile {
		return nil
	}
	for pause := firstNote; lifecycle.Sleep(ctx, pause) == nil; {
		began := time.Now()
		err := l.checkNote(ctx)
		if errors.Is(err, errChanged) {
			return err
		}
		if err != nil && !errors.Is(err, errAgain) && ctx.Err() == nil {
			logrus.WithField("component", "etcd").WithError(err).Warn("noting the checksum of etcd's data")
		}
		pause = max(noteEvery, noteShare*time.Since(began))
	}
	return nil
}
