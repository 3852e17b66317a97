package localcluster

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

// snapshotsDir is next to the clusters' directories. No cluster can have this name.
const snapshotsDir = ".snapshots"

func (s Store) snapshots() string { return filepath.Join(s.Dir, snapshotsDir) }

func (s Store) snapshot(name string, elem ...string) string {
	return filepath.Join(append([]string{s.snapshots(), name}, elem...)...)
}

const snapshotFile = "snapshot.json"

// sealFile is the file of a snapshot with what opens the keys with which the Secrets in etcd's data are encrypted; see pki.SealKeys. Snapshots of before
// that have none.
const sealFile = "seal"

// Snapshots lists the snapshots that can be read, the oldest first.
func (s Store) Snapshots() ([]Snapshot, error) {
	entries, err := os.ReadDir(s.snapshots())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	all := []Snapshot{}
	for _, e := range entries {
		if !validName.MatchString(e.Name()) {
			continue // not complete yet
		}
		if one, err := s.LoadSnapshot(e.Name()); err == nil { // a broken one hides no other
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(a, b Snapshot) int { return a.Created.Compare(b.Created) })
	return all, nil
}

// LoadSnapshot reads a snapshot's description.
func (s Store) LoadSnapshot(name string) (Snapshot, error) {
	var one Snapshot
	found, err := atomicfile.ReadJSON(s.snapshot(name, snapshotFile), &one)
	switch {
	case err == nil && !found, !validName.MatchString(name):
		return one, fmt.Errorf("there is no snapshot %s; coracle snapshot-cluster list shows all", name)
	case err != nil:
		return one, fmt.Errorf("reading snapshot %s: %w", name, err)
	}
	return one, nil
}

// partOf is the name of a snapshot that a cluster is taking: others may take one of the same name.
func partOf(snapshot, cluster string) string { return "." + snapshot + "." + cluster }

// removedPrefix begins the names of snapshots that are being removed.
const removedPrefix = ".removed-"

// RemoveSnapshot removes a snapshot, also one that cannot be read. Clusters that started from it do not need it.
func (s Store) RemoveSnapshot(ctx context.Context, name string) error {
	if _, err := s.LoadSnapshot(name); err != nil && (!validName.MatchString(name) || !paths.Exists(s.snapshot(name))) {
		return err
	}
	unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err = s.removeParts(s.hasEnded); err == nil { // an interrupted removal of the same name, too
		err = os.Rename(s.snapshot(name), s.snapshot(removedPrefix+name)) // at once, so that nobody starts from a part of it
	}
	if err == nil {
		err = s.removeParts(s.hasEnded)
	}
	if err != nil {
		return fmt.Errorf("removing snapshot %s: %w", name, err)
	}
	s.tidy()
	return nil
}

// removeParts removes what interrupted removals have left, and incomplete snapshots that the given clusters have begun.
func (s Store) removeParts(of func(cluster string) bool) error {
	entries, _ := os.ReadDir(s.snapshots()) // none if it does not exist
	var errs []error
	for _, e := range entries {
		rest, hidden := strings.CutPrefix(e.Name(), ".")
		_, cluster, taken := strings.Cut(rest, ".")
		if hidden && (taken && of(cluster) || strings.HasPrefix(e.Name(), removedPrefix) && !taken) {
			errs = append(errs, os.RemoveAll(s.snapshot(e.Name())))
		}
	}
	return errors.Join(errs...)
}

// hasEnded reports whether nobody holds a cluster any more.
func (s Store) hasEnded(cluster string) bool {
	r, err := s.Load(cluster)
	return isNotFound(err) || err == nil && r.State == Dead
}
