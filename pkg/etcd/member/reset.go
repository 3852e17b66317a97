package member

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sirupsen/logrus"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// ResetRequest asks a member to become the only one at its next start, with its present data. The other members are then removed, and
// learn that at their next request. It is a file, so that an interrupted reset continues.
type ResetRequest struct {
	// Snapshot is a directory that does not exist: the member's data is copied there first.
	Snapshot string `json:"snapshot"`
}

// Write writes the request to the file of Etcd.ResetRequest.
func (r ResetRequest) Write(file string) error { return atomicfile.WriteJSON(file, r, 0o600) }

// prepareReset changes cfg for a reset if there is a request for one.
func (e *Etcd) prepareReset(ctx context.Context, cfg *embed.Config) (resetting bool, err error) {
	var request ResetRequest
	found, err := atomicfile.ReadJSON(e.ResetRequest, &request)
	if err != nil {
		return false, fmt.Errorf("reading the request to reset the quorum: %w; if the file is damaged, remove it and repeat the command", err)
	}
	if !found {
		return false, nil
	}
	if !e.hasData() {
		return false, errors.Join(fmt.Errorf("there is no data in %s from which a new etcd could be made", e.Dir), os.Remove(e.ResetRequest))
	}
	lifecycle.WaitingFor(ctx, "a copy of etcd's data in "+request.Snapshot)
	defer lifecycle.WaitingFor(ctx, "")
	if err := copyData(e.Dir, request.Snapshot); err != nil {
		return false, fmt.Errorf("copying etcd's data before the quorum is reset: %w", err)
	}
	logrus.WithField("component", "etcd").WithField("copy", request.Snapshot).Warn("making this server's etcd a cluster of one member, as asked")
	cfg.ForceNewCluster = true
	return true, nil
}

// finishReset removes the request when the member is the only one.
func (l life) finishReset() error {
	if !l.alone() {
		return fmt.Errorf("etcd has %d members after the quorum was reset", len(l.server.Server.Cluster().Members()))
	}
	if err := os.Remove(l.ResetRequest); err != nil {
		return fmt.Errorf("removing the request to reset the quorum: %w", err)
	}
	logrus.WithField("component", "etcd").Info("this server's etcd is a cluster of one member now; the other servers join it again")
	return nil
}

// copyData copies the directory of a stopped member. It does nothing if the copy exists.
func copyData(from, to string) error {
	if _, err := os.Stat(to); err == nil {
		return nil
	}
	err := filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type() == fs.ModeSymlink {
			err = fmt.Errorf("%s is a symbolic link, of which a copy would be no backup: mount the disk there instead", path)
		}
		return err
	})
	if err != nil {
		return err
	}
	partial := to + ".partial"
	if err := os.RemoveAll(partial); err != nil {
		return err
	}
	if err := atomicfile.CopyTree(from, partial, nil); err != nil {
		return errors.Join(err, os.RemoveAll(partial)) // it may be what fills the disk
	}
	return os.Rename(partial, to)
}
