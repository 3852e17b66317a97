package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/front/command"
	"github.com/coracle-dev/coracle/pkg/machine/backup"
	"github.com/coracle-dev/coracle/pkg/machine/backup/bucket"
)

func etcdSnapshotCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "snapshot",
		Short: "Back the cluster up, and make it again of a backup",
		Long: `Back the cluster up, and make it again of a backup. It needs root, on a server.

A backup is one file with all that makes the cluster: etcd's data, the keys, the settings. Who can open it has all secrets
of the cluster. Pods' volumes and images are not in it. Servers make backups by themselves, every twelve hours unless
--etcd-snapshot-schedule-cron says otherwise.`,
	}
	return command.Group(c, snapshotSaveCommand(), snapshotListCommand(), snapshotRestoreCommand(), snapshotDeleteCommand(), snapshotPruneCommand())
}

// openFlags are the flags of commands that open backups.
type openFlags struct{ token, identity string }

func newOpenFlags(c *cobra.Command) *openFlags {
	o := &openFlags{}
	c.Flags().StringVar(&o.token, "token-file", "", "File with the server token that the backup is encrypted with, if this server has another one or none")
	c.Flags().StringVar(&o.identity, "identity", "", "File with the private key, of age or SSH, that the backup is encrypted for")
	_, _ = c.MarkFlagFilename("token-file"), c.MarkFlagFilename("identity")
	return o
}

func snapshotListCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "list [FILE...]",
		Short: "List backups: those in the directory of snapshots and in the bucket, or the files that are named",
		Args:  cobra.ArbitraryArgs,
	}
	here := dirFlags(c)
	settings, open := config.SnapshotFlags(c.Flags()), newOpenFlags(c)
	check := c.Flags().Bool("check", false, "Read each as a whole, in the bucket too, and say whether it is as it was written")
	output := command.OutputFlag(c, "", "json")
	c.RunE = func(c *cobra.Command, files []string) error {
		i := here()
		o, err := settings(os.Environ(), i.config)
		if err != nil {
			return err
		}
		list, wrong := listSnapshots(c.Context(), i, o, files)
		if *check {
			keys, err := i.openingKeys(*open)
			if err != nil {
				return err
			}
			for n := range list {
				wrong = errors.Join(wrong, list[n].check(c.Context(), keys))
			}
		}
		if *output == "json" {
			return errors.Join(json.NewEncoder(c.OutOrStdout()).Encode(list), wrong)
		}
		return errors.Join(printSnapshots(c.OutOrStdout(), list), wrong)
	}
	return interruptible(c)
}

// snapshotEntry is a backup with the place where it is.
type snapshotEntry struct {
	backup.Copy
	Location string `json:"location"`

	bucket *bucket.Bucket // nil for a file
	index  bucket.Index
}

// check reads the backup as a whole.
func (e *snapshotEntry) check(ctx context.Context, keys backup.Keys) error {
	if e.bucket != nil {
		return e.bucket.Get(ctx, e.index, keys, io.Discard)
	}
	m, err := backup.Verify(e.File, keys)
	if err == nil { // what the note says is a claim
		e.Created, e.Version, e.Node, e.Revision = m.Created, m.Version, m.Node, m.Revision
	}
	return err
}

func listSnapshots(ctx context.Context, i installation, o config.Snapshots, files []string) (list []snapshotEntry, wrong error) {
	for _, file := range files {
		c, err := backup.CopyAt(file)
		if err != nil {
			wrong = errors.Join(wrong, err)
			continue
		}
		list = append(list, snapshotEntry{Copy: c, Location: file})
	}
	if len(files) > 0 {
		return list, wrong
	}
	all, wrong := backup.Copies(o.Dir)
	for _, c := range all {
		list = append(list, snapshotEntry{Copy: c, Location: c.File})
	}
	if !o.S3.On {
		return list, wrong
	}
	b, _, err := i.bucket(ctx, o)
	if err != nil {
		return list, errors.Join(wrong, err)
	}
	there, err := b.ListAll(ctx)
	for _, x := range there {
		list = append(list, snapshotEntry{Copy: backup.Copy{Summary: x.Summary}, Location: b.Location(x), bucket: b, index: x})
	}
	return list, errors.Join(wrong, err)
}

func printSnapshots(out io.Writer, list []snapshotEntry) error {
	t := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "NAME\tCREATED\tNODE\tREVISION\tSIZE\tTRIED\tOPENED BY\tLOCATION")
	for _, c := range list {
		tried := "no"
		switch {
		case c.Error != "":
			tried = "FAILED"
		case c.BucketError != "":
			tried = "yes, but not in the bucket"
		case !c.Tried.IsZero():
			tried = "yes"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", c.Name, c.Created.UTC().Format(time.RFC3339), cmp.Or(c.Node, "?"), c.Revision, size(c.Size), tried,
			cmp.Or(string(c.For), "?"), c.Location)
	}
	return t.Flush()
}
