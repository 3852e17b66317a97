package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/version"
	etcdexport "github.com/coracle-dev/coracle/pkg/etcd/export"
	"github.com/coracle-dev/coracle/pkg/etcd/member"
	"github.com/coracle-dev/coracle/pkg/machine/backup"
)

func snapshotSaveCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "save [FILE]",
		Short: "Write a backup of the running cluster, and try it",
		Long: `Write a backup of the running cluster to FILE, or to the directory of snapshots, and into the bucket if there is one. Nothing
stands still meanwhile. An etcd is then made of the file and compared with the running one, so that the backup is known to restore.

With --etcd-snapshot-recipient only that key's owner can open the file, else whoever knows the server token; without a
server token, whoever has the file, which is for root only.`,
		Example: `# To a disk that is not this machine's
coracle etcd snapshot save /mnt/backup/monday.tar.zst

# Into a bucket, for the owner of a key
coracle etcd snapshot save --etcd-s3 --etcd-s3-bucket=edge --etcd-snapshot-recipient=age1...`,
		Args: cobra.MaximumNArgs(1),
	}
	here := dirFlags(c)
	settings := config.SnapshotFlags(c.Flags())
	scheduled := c.Flags().Bool("scheduled", false, "")
	_ = c.Flags().MarkHidden("scheduled")
	c.RunE = func(c *cobra.Command, args []string) error {
		i := here()
		o, err := settings(os.Environ(), i.config)
		if err != nil {
			return err
		}
		s := saving{installation: i, settings: o, scheduled: *scheduled}
		if len(args) > 0 {
			s.file = args[0]
		}
		return s.run(c.Context(), c.OutOrStdout())
	}
	return interruptible(c)
}

// saving makes one backup.
type saving struct {
	installation
	settings  config.Snapshots
	file      string // "" for one in the directory of snapshots, which also goes into the bucket
	scheduled bool   // by the server itself
}

// memoryLimit is for this process, which runs beside the control plane: Go's runtime collects more often before it uses more.
const memoryLimit = 64 << 20

func (s saving) run(ctx context.Context, out io.Writer) error {
	debug.SetMemoryLimit(memoryLimit)
	if err := s.ownEtcd(); err != nil {
		return err
	}
	began := time.Now()
	keys, err := s.backupKeys("", "")
	if err != nil {
		return err
	}
	keys.Recipients = s.settings.Recipients
	if err := os.MkdirAll(s.dirs.Snapshots(), 0o700); err != nil {
		return fmt.Errorf("making the directory for backups: %w", err)
	}
	done, err := backup.Lock(ctx, s.dirs.Snapshots())
	if err != nil {
		return err
	}
	defer done()
	made, err := s.make(ctx, keys)
	attempt := backup.Attempt{Time: time.Now().UTC(), Copy: made, File: made.File}
	if err != nil {
		attempt.Error = err.Error()
	}
	err = errors.Join(err, attempt.Note(s.dirs.Snapshots()))
	s.tell(ctx, made, err)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: %s, with %d objects up to revision %d, written and tried in %.1f s\n",
		made.File, size(made.Size), made.Objects, made.Revision, time.Since(began).Seconds())
	if made.Bucket != "" {
		fmt.Fprintf(out, "It is in %s too: %s were sent.\n", made.Bucket, size(made.Sent))
	}
	return s.prune(ctx)
}

// make writes the backup, tries it and puts it into the bucket.
func (s saving) make(ctx context.Context, keys backup.Keys) (made backup.Copy, err error) {
	if err := errors.Join(backup.CheckRecipients(keys.Recipients), s.checkBucket(keys)); err != nil {
		return made, err
	}
	made, keys, err = s.write(ctx, keys)
	if err == nil {
		err = s.upload(ctx, &made, keys)
	}
	if made.File != "" {
		err = errors.Join(err, made.Note())
	}
	return made, err
}

// write writes the backup and tries it. What could not be tried stays, with the reason.
func (s saving) write(ctx context.Context, keys backup.Keys) (made backup.Copy, _ backup.Keys, err error) {
	members, err := s.members()
	if err != nil {
		return made, keys, err
	}
	list, err := members.List(ctx)
	if err != nil {
		return made, keys, err
	}
	own, err := members.Own(ctx)
	if err != nil {
		return made, keys, err
	}
	if err := backup.CheckRoom(s.dirs.Snapshots(), own.Size); err != nil {
		return made, keys, err
	}
	temp, done, err := backup.TempDir(s.dirs.Snapshots())
	if err != nil {
		return made, keys, err
	}
	defer done()
	db := filepath.Join(temp, "db")
	want, err := s.saveDatabase(ctx, db)
	if err != nil {
		return made, keys, err
	}
	m := backup.Manifest{Version: version.Version, Created: time.Now().UTC(), Node: s.config.Node.Name, Revision: want.Revision}
	for _, one := range list {
		m.Members = append(m.Members, one.Name)
	}
	api := s.config.API
	settings := slices.DeleteFunc([]string{filepath.Join(s.dirs.Config, "config.yaml"), api.AdmissionConfig, api.SchedulerConfig,
		api.EncryptionConfig, api.AuditPolicy}, func(path string) bool { return path == "" })
	files, err := backup.Gather(s.dirs, func(w io.Writer) error { return etcdexport.Write(w, db) }, settings)
	if err != nil {
		return made, keys, err
	}
	file, err := s.place(m.Created, keys)
	if err != nil {
		return made, keys, err
	}
	readers := keys.Readers()
	if keys, err = backup.Write(file, keys, m, files); err != nil {
		return made, keys, err
	}
	if err := os.Remove(db); err != nil { // the room is for the trial
		return made, keys, err
	}
	if made, err = backup.CopyAt(file); err != nil {
		return made, keys, err
	}
	made.Created, made.Version, made.Node, made.Revision, made.Objects, made.For = m.Created, m.Version, m.Node, m.Revision, want.Objects, readers
	made.Tried, made.Error = time.Time{}, ""
	if err := try(ctx, file, keys, temp, want); err != nil {
		made.Error = err.Error()
		return made, keys, fmt.Errorf("%s was written, and trying it failed: %w", file, err)
	}
	made.Tried = time.Now().UTC()
	return made, keys, nil
}

// place returns the path of the backup.
func (s saving) place(now time.Time, keys backup.Keys) (string, error) {
	if s.file != "" {
		return s.file, nil
	}
	if err := os.MkdirAll(s.settings.Dir, 0o700); err != nil {
		return "", fmt.Errorf("making the directory for backups: %w", err)
	}
	if err := backup.RemoveLeft(s.settings.Dir, s.prefix()); err != nil {
		return "", err
	}
	return filepath.Join(s.settings.Dir, s.prefix()+now.Format("20060102T150405Z")+keys.Suffix()), nil
}

// prefix is what the names of this server's backups of a kind begin with.
func (s saving) prefix() string {
	name := "on-demand"
	if s.scheduled || s.settings.Name != config.DefaultSnapshotName {
		name = s.settings.Name
	}
	return name + "-" + s.config.Node.Name + "-"
}

// compactions is how often the database is read again, if etcd forgot revisions between its copy and its hash.
const compactions = 3

// saveDatabase writes a snapshot of etcd's database, and returns what the running etcd has at its revision.
func (s saving) saveDatabase(ctx context.Context, db string) (want member.Contents, err error) {
	for range compactions {
		d, err := member.Save(ctx, s.dirs.EtcdSocket(), db)
		if err != nil {
			return want, err
		}
		if want, err = member.ContentsAt(ctx, s.dirs.EtcdSocket(), d.Revision); err != nil {
			return want, err
		}
		if want.Compacted == d.Compacted {
			return want, nil
		}
		if err := os.Remove(db); err != nil {
			return want, err
		}
	}
	return want, errors.New("etcd forgets revisions faster than its data is copied: try again")
}

// try makes an etcd of the backup, starts it, and compares it with what the running one had.
func try(ctx context.Context, file string, keys backup.Keys, temp string, want member.Contents) error {
	entries := filepath.Join(temp, "db.entries")
	if err := backup.ExtractDatabase(file, keys, entries); err != nil {
		return err
	}
	got, err := member.Try(ctx, entries, filepath.Join(temp, "db.etcd"), want.Revision)
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("an etcd that was made of it has %d objects with the hash %08x at revision %d, and the running one %d with %08x",
			got.Objects, got.Hash, want.Revision, want.Objects, want.Hash)
	}
	return nil
}
