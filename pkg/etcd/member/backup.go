package member

import (
	"context"
	"crypto/rand"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
)

// Database is what is in a snapshot of etcd's database.
type Database struct {
	Revision int64
	Keys     int
	Size     int64 // bytes
}

// Save writes a snapshot of the running member's database to a file, which is there as a whole or not at all, and returns what
// is in it, after it has been read again.
func Save(ctx context.Context, socket, file string) (Database, error) {
	cfg := clientv3.Config{Endpoints: []string{"unix://" + socket}, Logger: zap.NewNop()}
	if _, err := snapshot.NewV3(zap.NewNop()).Save(ctx, cfg, file); err != nil {
		return Database{}, fmt.Errorf("taking a snapshot of etcd: %w", err)
	}
	return Inspect(file)
}

// Inspect reads a snapshot and says what is wrong with it.
func Inspect(file string) (d Database, err error) {
	defer func() {
		if p := recover(); p != nil { // as bbolt answers some damage
			err = fmt.Errorf("reading the snapshot %s: %v", file, p)
		}
	}()
	status, err := snapshot.NewV3(zap.NewNop()).Status(file)
	if err != nil {
		return d, fmt.Errorf("reading the snapshot %s: %w", file, err)
	}
	return Database{Revision: status.Revision, Keys: status.TotalKey, Size: status.TotalSize}, nil
}

// revisionBump is how much higher revisions are after a restore. Clients that have seen later ones than the snapshot's
// must not take what is written from now on for what they know: they read everything again. That many revisions are
// written in years.
const revisionBump = 1_000_000_000

// Restore checks a snapshot and makes a data directory, which must not exist, out of it: that of the only member of a new
// cluster, with the name of this server's node.
func Restore(file, dir, name string) error {
	if _, err := Inspect(file); err != nil {
		return err
	}
	const url = "https://127.0.0.1:2380" // as of every member that is alone
	err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: file, OutputDataDir: dir, Name: name, PeerURLs: []string{url}, InitialCluster: name + "=" + url,
		InitialClusterToken: rand.Text(), RevisionBump: revisionBump, MarkCompacted: true,
	})
	if err != nil {
		return fmt.Errorf("making etcd's data out of the snapshot: %w", err)
	}
	return nil
}
