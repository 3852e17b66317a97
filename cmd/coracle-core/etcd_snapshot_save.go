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
	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/throttle"
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
		if !*scheduled && !c.Flags().Changed("etcd-snapshot-name") {
			o.Name = "on-demand"
		}
		s, err := i.saving(o)
		if err != nil {
			return err
		}
		s.scheduled = *scheduled
		if len(args) > 0 {
			s.file = args[0]
		}
		return s.run(c.Context(), c.OutOrStdout())
	}
	return interruptible(c)
}

// saving makes and removes backups of this server.
type saving struct {
	installation
	settings  config.Snapshots
	series    backup.Series
	file      string // "" for one in the directory of snapshots, which also goes into the bucket
	scheduled bool   // by the server itself
}

func (i installation) saving(o config.Snapshots) (s saving, err error) {
	if err := i.ownEtcd(); err != nil {
		return s, err
	}
	seals, err := pki.SealKeys(i.dirs, pki.SealPieces) // that of the authority that signs comes first
	if err != nil {
		return s, err
	}
	return saving{installation: i, settings: o, series: backup.Series{Name: o.Name, Node: i.config.Node.Name, Cluster: seals[0].Name}}, nil
}

// memoryLimit is for this process, which runs beside the control plane: Go's runtime collects more often before it uses more.
const memoryLimit = 64 << 20

// lowestPriority is the nice value of a process that others come before.
const lowestPriority = 19

// Such a process copies so many bytes a second; more if a database would take longer than a minute each time: while etcd's is read, it grows,
// and cannot be defragmented. It is copied five times until the backup has been tried.
const (
	scheduledRate = 40 << 20
	slowestCopy   = 60       // seconds
	uploadRate    = 28 << 20 // to a bucket: encrypting and sending as fast as possible leaves other processes waiting for the processor
)

// lock keeps other commands from making and removing backups.
func (s saving) lock(ctx context.Context) (done func(), err error) {
	if err := os.MkdirAll(s.dirs.Snapshots(), 0o700); err != nil {
		return nil, fmt.Errorf("making the directory for backups: %w", err)
	}
	return backup.Lock(ctx, s.dirs.Snapshots(), func() { fmt.Fprintln(os.Stderr, "waiting for another command that makes or removes backups") })
}

func (s saving) run(ctx context.Context, out io.Writer) error {
	debug.SetMemoryLimit(memoryLimit)
	if s.scheduled { // the kernel kills this process before pods, and gives it the processor after the control plane; the front has given it a group of its own
		_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0)
		_ = unix.Setpriority(unix.PRIO_PGRP, 0, lowestPriority)
	}
	done, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer done()
	began := time.Now()
	file := s.dirs.LastSnapshot()
	if err := backup.RemoveUnfinished(file); err != nil {
		return err
	}
	var before backup.Attempt
	if last := backup.LastAttempt(file); last != nil {
		before = *last
	}
	begun := before
	begun.Begun = began.UTC()
	if err := begun.Note(file); err != nil {
		return err
	}
	made, err := s.make(ctx)
	if ctx.Err() != nil { // somebody has stopped this, and nothing has failed
		return errors.Join(err, before.Note(file))
	}
	attempt := backup.Attempt{Time: time.Now().UTC(), Copy: made, File: made.File}
	if err != nil {
		attempt.Error = err.Error()
	}
	if err == nil {
		fmt.Fprintf(out, "%s: %s, with %d objects up to revision %d, written and tried in %.1f s\n",
			made.File, size(made.Size), made.Objects, made.Revision, time.Since(began).Seconds())
	}
	if made.Bucket != "" {
		fmt.Fprintf(out, "It is in %s too: %s were sent.\n", made.Bucket, size(made.Sent))
	}
	err = errors.Join(err, attempt.Note(file))
	if pruned := s.prune(ctx, made); pruned != nil {
		err = errors.Join(err, fmt.Errorf("removing former backups: %w", pruned))
	}
	s.tell(ctx, s.event(made, err))
	return err
}

// make writes the backup, tries it and puts it into the bucket.
func (s saving) make(ctx context.Context) (made backup.Copy, err error) {
	keys, err := s.ownKeys()
	if err != nil {
		return made, err
	}
	if s.scheduled { // the retention may have been lowered, to make room
		if _, err := s.pruneHere(); err != nil {
			return made, err
		}
	}
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
	file, err := s.place(time.Now(), keys)
	if err != nil {
		return made, keys, err
	}
	if err := errors.Join(backup.CheckRoom(s.dirs.Snapshots(), backup.RoomForTrial(own.Size)), backup.CheckRoom(filepath.Dir(file), own.Size)); err != nil {
		return made, keys, fmt.Errorf("there is no room for a backup and its trial: %w", err)
	}
	temp, done, err := backup.TempDir(s.dirs.Snapshots())
	if err != nil {
		return made, keys, err
	}
	defer done()
	var limit *throttle.Limit
	if s.scheduled {
		var end func()
		limit, end = throttle.New(max(scheduledRate, own.Size/slowestCopy), temp, filepath.Dir(file))
		defer end()
	}
	db := filepath.Join(temp, "db")
	want, err := member.Save(ctx, s.dirs.EtcdSocket(), db, limit)
	if err != nil {
		return made, keys, err
	}
	m := backup.Manifest{Version: version.Version, Created: time.Now().UTC(), Node: s.series.Node, Revision: want.Revision}
	for _, one := range list {
		m.Members = append(m.Members, one.Name)
	}
	api := s.config.API
	settings := slices.DeleteFunc([]string{filepath.Join(s.dirs.Config, "config.yaml"), api.AdmissionConfig, api.SchedulerConfig,
		api.EncryptionConfig, api.AuditPolicy, s.config.ACME.CAFile, s.config.ACME.BindingFile}, func(path string) bool { return path == "" })
	files, err := backup.Gather(s.dirs, func(w io.Writer) error { return etcdexport.Write(limit.Writer(w), db) }, settings)
	if err != nil {
		return made, keys, err
	}
	// The note comes first: what has none is not this server's, and one that says less than it could is no false claim.
	made = backup.Copy{File: file, Summary: backup.Summary{Created: m.Created, Version: m.Version, Node: m.Node, Cluster: s.series.Cluster,
		Revision: m.Revision, Objects: want.Objects, For: keys.Readers()}}
	if err := made.Note(); err != nil {
		return backup.Copy{}, keys, err
	}
	if keys, err = backup.Write(file, keys, m, files); err != nil {
		return backup.Copy{}, keys, err
	}
	if made, err = backup.CopyAt(file); err != nil {
		return made, keys, err
	}
	if err := throttle.RemoveAll(db); err != nil { // the room is for the trial
		return made, keys, err
	}
	if err := try(ctx, file, keys, temp, want, limit); err != nil {
		made.Error = err.Error()
		return made, keys, fmt.Errorf("%s was written, and trying it failed: %w", file, err)
	}
	made.Tried = time.Now().UTC()
	return made, keys, nil
}
