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
)

// parts are what belongs together in a server's datastore: etcd's data, the keys that sign what is in it, and what the
// server remembers of the cluster. A new version may change each of them. Files are where Dirs has them; the name is
// that in a copy.
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

// peersMark is the file by which etcd remembers that it has or had other members.
func peersMark(d paths.Dirs) string { return filepath.Join(d.Etcd(), "peers") }

// kept says why the datastore is left as it is when a trial fails; "" if it is put back.
func kept(d paths.Dirs, server bool) string {
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

// datastoreSize is how much a copy needs, in bytes.
func datastoreSize(d paths.Dirs) (size int64) {
	for _, p := range parts(d) {
		size += treeSize(p.path)
	}
	return size
}

// saveDatastore copies the datastore of a stopped server to dir, which is there as a whole or not at all, and returns
// which parts there were.
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
	if err := room(part, datastoreSize(d), "a copy of the cluster's data"); err != nil {
		return nil, err
	}
	for _, p := range parts(d) {
		if !paths.Exists(p.path) {
			continue
		}
		if err := copyTree(p.path, filepath.Join(part, p.name)); err != nil {
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

// restoreDatastore puts the copy in dir, with the parts that are named, in the place of the datastore, which goes to aside.
// It goes on where an earlier call was interrupted.
func (e *engine) restoreDatastore(d paths.Dirs, dir string, saved []string, aside string) error {
	for _, p := range parts(d) {
		copied := filepath.Join(dir, p.name)
		if slices.Contains(saved, p.name) && !paths.Exists(copied) {
			continue // it is back already
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

// useDatastore puts a copy of what is in dir in the place of the datastore, of which there is a copy elsewhere.
func (e *engine) useDatastore(d paths.Dirs, dir string) error {
	for _, p := range parts(d) {
		e.at("use the old " + p.name)
		if err := os.RemoveAll(p.path); err != nil {
			return err
		}
		if from := filepath.Join(dir, p.name); paths.Exists(from) {
			if err := copyTree(from, p.path); err != nil {
				return fmt.Errorf("putting the cluster's former data in place: %w", err)
			}
		}
	}
	return nil
}

// pruneFailed removes all datastores that were given up but the one to keep.
func (p place) pruneFailed(keep string) {
	entries, err := os.ReadDir(p.join())
	if err != nil {
		return // the next time
	}
	for _, e := range entries {
		if path := p.join(e.Name()); strings.HasPrefix(e.Name(), failedPrefix) && path != keep {
			_ = os.RemoveAll(path)
		}
	}
}
