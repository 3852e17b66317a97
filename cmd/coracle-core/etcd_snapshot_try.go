package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/throttle"
	"github.com/coracle-dev/coracle/pkg/etcd/member"
	"github.com/coracle-dev/coracle/pkg/machine/backup"
)

// trialTimeout bounds the trial. A database of 8 GB, the largest that etcd recommends, takes some minutes.
const trialTimeout = 30 * time.Minute

// try makes an etcd of the backup, starts it, and compares it with want, what the running one had.
func try(ctx context.Context, file string, keys backup.Keys, temp string, want member.Contents, limit *throttle.Limit) error {
	ctx, cancel := context.WithTimeout(ctx, trialTimeout)
	defer cancel()
	entries := filepath.Join(temp, "db.entries")
	if err := backup.ExtractDatabase(file, keys, entries, limit); err != nil {
		return err
	}
	got, err := member.Try(ctx, entries, filepath.Join(temp, "db.etcd"), limit)
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("an etcd that was made of it has %d objects with the checksum %016x at revision %d, and the running one had %d with %016x at revision %d",
			got.Objects, got.Sum, got.Revision, want.Objects, want.Sum, want.Revision)
	}
	return nil
}

// place returns the path of the backup.
func (s saving) place(now time.Time, keys backup.Keys) (string, error) {
	if s.file != "" {
		return s.file, backup.RemoveUnfinished(s.file)
	}
	dir := s.settings.Dir
	if _, err := os.Stat(dir); err != nil { // the default one is made by lock; a missing one may be a disk that is not mounted
		return "", fmt.Errorf("the directory of --etcd-snapshot-dir: %w: make it, or mount it", err)
	}
	if err := s.series.RemoveLeft(dir); err != nil {
		return "", err
	}
	for ; ; now = now.Add(time.Second) { // one of the same second is not replaced
		file := filepath.Join(dir, s.series.At(now)+keys.Suffix())
		if _, err := os.Lstat(file); err != nil {
			return file, nil
		}
	}
}
