package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/ledger"
	"github.com/coracle-dev/coracle/pkg/core/supervise"
	"github.com/coracle-dev/coracle/pkg/etcd/member"
	"github.com/coracle-dev/coracle/pkg/machine/backup"
)

// restoring is one run of coracle etcd snapshot restore.
type restoring struct {
	installation
	file     string
	manifest backup.Manifest
	lock     *os.File
	kept     string   // where the former data is; "" if there was none
	restored []string // files of the machine that were missing
}

// restoring looks whether a backup can be restored here, and keeps coracle from starting until unlock.
func (i installation) restoring(file string) (*restoring, error) {
	switch {
	case os.Geteuid() != 0:
		return nil, errors.New("only root may change the cluster's data: use sudo")
	case i.config.Role == config.Agent && i.config.Join.Joined:
		return nil, errors.New("this machine is an agent: restore the backup on a server, or run coracle reset here first")
	case i.config.Datastore.External():
		return nil, errors.New("this cluster's data is in an etcd that coracle does not run: use its own tools")
	}
	r := &restoring{installation: i, file: file}
	var err error
	if r.manifest, err = backup.Read(file); err != nil {
		return nil, err
	}
	if err := ledger.Open(i.dirs).MkdirAll(i.dirs.Data, 0o755); err != nil {
		return nil, err
	}
	r.lock, err = supervise.Lock(i.dirs.Lock())
	var held *supervise.HeldError
	if errors.As(err, &held) {
		return nil, fmt.Errorf("coracle runs here (pid %d): stop it first, as with systemctl stop coracle; pods run on", held.PID)
	}
	return r, err
}

func (r *restoring) unlock() { r.lock.Close() }

// has reports whether there is data that is replaced.
func (r *restoring) has() bool {
	_, err := os.Stat(r.dirs.Etcd())
	return err == nil
}

// run makes everything beside the place where it belongs, and then exchanges the two in one step.
func (r *restoring) run() error {
	fresh := r.server() + ".restoring"
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	defer os.RemoveAll(fresh)
	var err error
	if r.manifest, r.restored, err = backup.Extract(r.file, fresh, "/"); err != nil {
		return fmt.Errorf("unpacking the backup: %w", err)
	}
	server := filepath.Join(fresh, "server")
	db := filepath.Join(fresh, backup.Database)
	if _, err := member.Inspect(db); err != nil {
		return err
	}
	name := cmp.Or(r.config.Node.Name, r.manifest.Node)
	if err := member.Restore(db, filepath.Join(server, filepath.Base(r.dirs.Etcd())), name); err != nil {
		return err
	}
	unix.Sync() // etcd's tool does not, for the names
	return r.exchange(server)
}

func (r *restoring) server() string { return filepath.Dir(r.dirs.Etcd()) }

// exchange puts the new directory in the place of the old one, which is kept, in place of one that was kept before.
func (r *restoring) exchange(fresh string) error {
	_, err := os.Stat(r.server())
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.Rename(fresh, r.server()); err != nil {
			return fmt.Errorf("putting the restored data in place: %w", err)
		}
		return atomicfile.SyncDir(r.dirs.Data)
	}
	snapshots := filepath.Base(r.dirs.Snapshots())
	if err := unix.Renameat2(unix.AT_FDCWD, fresh, unix.AT_FDCWD, r.server(), unix.RENAME_EXCHANGE); err != nil {
		return fmt.Errorf("putting the restored data in place: %w", err)
	}
	kept := r.server() + ".before-restore"
	if err := os.RemoveAll(kept); err != nil {
		return err
	}
	if err := os.Rename(fresh, kept); err != nil {
		return fmt.Errorf("keeping what was there before: %w", err)
	}
	r.kept = kept
	if err := os.Rename(filepath.Join(kept, snapshots), r.dirs.Snapshots()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("taking the backups along: %w", err)
	}
	return atomicfile.SyncDir(r.dirs.Data)
}
