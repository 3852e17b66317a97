package member

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/sirupsen/logrus"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"github.com/coracle-dev/coracle/pkg/core/throttle"
	"github.com/coracle-dev/coracle/pkg/etcd/export"
)

// Save writes a snapshot of the running member's database to a file, which must not exist, reads it again, and returns what it holds. After an error there is
// no partial file.
func Save(ctx context.Context, socket, file string, limit *throttle.Limit) (c Contents, err error) {
	if err := copyDatabase(ctx, socket, file, limit); err != nil {
		return c, fmt.Errorf("taking a snapshot of etcd: %w", err)
	}
	if c, err = contentsOf(file); err != nil { // its structure is looked at when it is tried: here that would slow the cluster's writes
		_ = os.Remove(file)
	}
	return c, err
}

// check reads all of a snapshot and looks at its structure.
func check(file string) error {
	return reading(file, func() error {
		_, err := snapshot.NewV3(zap.NewNop()).Status(file)
		return err
	})
}

// reading has a snapshot read, and names it in an error. A damaged one, which is mapped, makes bbolt panic, and a disk that fails the process.
func reading(file string, read func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("reading the snapshot %s: %v", file, p)
		}
	}()
	if err := read(); err != nil {
		return fmt.Errorf("reading the snapshot %s: %w", file, err)
	}
	return nil
}

// revisionBump is added to the revision at a restore. Clients may have seen higher revisions than the snapshot's, and must not mistake new
// writes for old ones. A cluster needs years for that many revisions.
const revisionBump = 1_000_000_000

// Restore checks etcd's data of a backup, entries or a snapshot, and makes a data directory from it: that of the only member of a new cluster,
// whose name is that of this server's node. The directory must not exist.
func Restore(file, dir, name string) error { return restore(file, dir, name, revisionBump, nil) }

func restore(file, dir, name string, bump uint64, limit *throttle.Limit) (err error) {
	entries, err := export.Is(file)
	if err != nil {
		return err
	}
	if entries {
		db := file + ".snapshot"
		_ = os.Remove(db) // of a call that was killed
		if err := load(file, db, limit); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, throttle.RemoveAll(db)) }()
		file = db
	}
	if err := check(file); err != nil {
		return err
	}
	const url = "https://127.0.0.1:2380" // of every member that is alone
	ended := make(chan error, 1)
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	go func() { // a fatal line, such as of a disk that fails, ends only this goroutine
		err := snapshot.NewV3(logger(quiet, ended)).Restore(snapshot.RestoreConfig{
			SnapshotPath: file, OutputDataDir: dir, Name: name, PeerURLs: []string{url}, InitialCluster: name + "=" + url,
			InitialClusterToken: rand.Text(), RevisionBump: bump, MarkCompacted: bump > 0, SkipHashCheck: entries,
		})
		ended <- err
	}()
	if err := <-ended; err != nil {
		return fmt.Errorf("making etcd's data from the snapshot: %w", err)
	}
	return nil
}

// load makes the database of a file with entries.
func load(file, db string, limit *throttle.Limit) error {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	return export.Read(limit.Reader(in), db)
}
