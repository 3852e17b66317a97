package upgrade

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/machine/payload"
)

// parts returns the files that make up a server's datastore: etcd's data, the keys that sign what is in it, and the server's
// copy of the cluster's settings. A new version may change each of them. name is the name in a copy.
func parts(d paths.Dirs) []part {
	return []part{
		{"etcd-member", filepath.Join(d.Etcd(), "member")},
		{"etcd-peers", peersMark(d)},
		{"pki", d.PKI()},
		{"cluster.json", d.ServerCluster()},
		{"own-nodes.json", d.OwnNodes()},
		{"token", d.Token()},
		{"agent-token", d.AgentToken()},
		{"shared", filepath.Dir(d.SharedFile("any"))},
	}
}

type part struct{ name, path string }

// peersMark is the file that records that etcd has or had other members.
func peersMark(d paths.Dirs) string { return filepath.Join(d.Etcd(), "peers") }

// whyNotRestored returns why the datastore is not restored when a trial fails; "" if it is restored.
func whyNotRestored(d paths.Dirs, server bool) string {
	logs, _ := filepath.Glob(filepath.Join(d.Etcd(), "member", "wal", "*.wal"))
	switch {
	case !server:
		return "an agent has none of the cluster's data"
	case len(logs) == 0:
		return "the cluster's data is not in an etcd of this machine"
	case paths.Exists(peersMark(d)):
		return "the cluster's data is on several servers, and one of them must not go back in time"
	}
	return ""
}

// datastoreSize returns the size of a copy in bytes.
func datastoreSize(d paths.Dirs) (size int64) {
	for _, p := range parts(d) {
		size += treeSize(p.path)
	}
	return size
}

// saveDatastore copies the datastore of a stopped server to dir, which then is complete or absent. It returns the names of the
// parts that exist.
func saveDatastore(d paths.Dirs, dir string) (saved []string, err error) {
	part := dir + ".part"
	for _, old := range []string{dir, part} {
		if err := os.RemoveAll(old); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(part, 0o700); err != nil {
		return nil, err
	}
	if err := payload.Room(part, datastoreSize(d), "a copy of the cluster's data"); err != nil {
		return nil, err
	}
	for _, p := range parts(d) {
		if !paths.Exists(p.path) {
			continue
		}
		if err := atomicfile.CopyTree(p.path, filepath.Join(part, p.name), prepared); err != nil {
			return nil, errors.Join(fmt.Errorf("copying the cluster's data: %w", err), os.RemoveAll(part))
		}
		saved = append(saved, p.name)
	}
	if err := atomicfile.SyncDir(part); err != nil {
		return nil, err
	}
	if err := os.Rename(part, dir); err != nil {
		return nil, err
	}
	return saved, atomicfile.SyncDir(filepath.Dir(dir))
}

// restoreDatastore moves the datastore to aside and the copy in dir, with the saved parts, to its place. It continues where an
// earlier call was interrupted.
func (e *engine) restoreDatastore(d paths.Dirs, dir string, saved []string, aside string) error {
	for _, p := range parts(d) {
		copied := filepath.Join(dir, p.name)
		if slices.Contains(saved, p.name) && !paths.Exists(copied) {
			continue // an earlier call has restored it
		}
		if paths.Exists(p.path) {
			e.at("move " + p.name + " aside")
			to := filepath.Join(aside, p.name)
			if err := os.RemoveAll(to); err != nil {
				return err
			}
			if err := move(p.path, to); err != nil {
				return fmt.Errorf("moving the new version's data aside: %w", err)
			}
		}
		if paths.Exists(copied) {
			e.at("put " + p.name + " back")
			if err := move(copied, p.path); err != nil {
				return fmt.Errorf("putting the cluster's data back: %w", err)
			}
		}
	}
	return nil
}

// replaceDatastore replaces the datastore with a copy of the one in dir. The caller has saved the present one.
func (e *engine) replaceDatastore(d paths.Dirs, dir string) error {
	for _, p := range parts(d) {
		e.at("use the old " + p.name)
		if err := os.RemoveAll(p.path); err != nil {
			return err
		}
		if from := filepath.Join(dir, p.name); paths.Exists(from) {
			if err := atomicfile.CopyTree(from, p.path, prepared); err != nil {
				return fmt.Errorf("putting the cluster's former data in place: %w", err)
			}
		}
	}
	return nil
}

// pruneFailed removes the datastores of failed trials except keep.
func (p place) pruneFailed(keep string) {
	entries, err := os.ReadDir(p.join())
	if err != nil {
		return // the next call will do it
	}
	for _, e := range entries {
		if path := p.join(e.Name()); strings.HasPrefix(e.Name(), failedPrefix) && path != keep {
			_ = os.RemoveAll(path)
		}
	}
}
