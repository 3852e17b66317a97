package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/ledger"
	"github.com/coracle-dev/coracle/pkg/etcd/member"
	"github.com/coracle-dev/coracle/pkg/front/command"
	"github.com/coracle-dev/coracle/pkg/machine/backup"
	"github.com/coracle-dev/coracle/pkg/machine/backup/bucket"
)

func snapshotRestoreCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "restore [FILE|DIR|NAME]",
		Short: "Make the cluster of a backup again, on this machine",
		Long: `Make the cluster of a backup again, on this machine, which was its server or is a new one. Coracle must be stopped; its next
start is that of the cluster as it was. Everything that was written after the backup is lost. What this machine's server
has now is kept, beside the data directory's server.

It is that in FILE, or the newest in DIR. With --etcd-s3 it is the one called NAME in the bucket, or else the newest there.

Other servers of the cluster must be stopped before, and lose their data (coracle reset): they join again afterwards.`,
		Example: `systemctl stop coracle
coracle etcd snapshot restore /mnt/backup/monday.tar.zst
systemctl start coracle

# On a new machine, with nothing but the bucket and the private key
coracle etcd snapshot restore --etcd-s3 --etcd-s3-bucket=edge --identity=key.txt`,
		Args: cobra.MaximumNArgs(1),
	}
	here := dirFlags(c)
	settings, open := config.SnapshotFlags(c.Flags()), newOpenFlags(c)
	yes := c.Flags().BoolP("yes", "y", false, "Do not ask")
	c.RunE = func(c *cobra.Command, args []string) error {
		i := here()
		switch {
		case os.Geteuid() != 0:
			return errors.New("only root may change the cluster's data: use sudo")
		case i.config.Role == config.Agent && i.config.Join.Joined:
			return errors.New("this machine is an agent: restore the backup on a server, or run coracle reset here first")
		case i.config.Datastore.External():
			return errors.New("this cluster's data is in an etcd that coracle does not run: use its own tools")
		}
		o, err := settings(os.Environ(), i.config)
		if err != nil {
			return err
		}
		keys, err := i.backupKeys(open.token, open.identity)
		if err != nil {
			return err
		}
		what := ""
		if len(args) > 0 {
			what = args[0]
		}
		file, done, err := i.findBackup(c.Context(), o, keys, what)
		if err != nil {
			return err
		}
		defer done()
		r, err := backup.NewRestore(i.dirs, file, keys)
		if err != nil {
			return err
		}
		defer r.Close()
		if !*yes && r.Replaces() {
			if err := command.Confirm(c.InOrStdin(), c.OutOrStdout(), "What this server has now is replaced by the cluster of "+
				r.Manifest.Created.Local().Format(time.DateTime)+". "); err != nil {
				return err
			}
		}
		if err := r.Run(i.config.Node.Name, member.Restore); err != nil {
			return err
		}
		printRestored(c.OutOrStdout(), r)
		return nil
	}
	return interruptible(c)
}

// findBackup returns the file of a backup: what names it, its directory, or its name in the bucket. done removes what was downloaded.
func (i installation) findBackup(ctx context.Context, o config.Snapshots, keys backup.Keys, what string) (file string, done func(), err error) {
	if o.S3.On && (what == "" || !strings.Contains(what, "/")) {
		return i.download(ctx, o, keys, what)
	}
	if what == "" {
		what = o.Dir
	}
	if info, err := os.Stat(what); err != nil || !info.IsDir() {
		return what, func() {}, err
	}
	all, err := backup.Copies(what)
	if err != nil {
		return "", nil, err
	}
	if len(all) == 0 {
		return "", nil, fmt.Errorf("%s has no backup", what)
	}
	return all[len(all)-1].File, func() {}, nil
}

// download reads a backup from the bucket, the newest if name is "".
func (i installation) download(ctx context.Context, o config.Snapshots, keys backup.Keys, name string) (file string, done func(), err error) {
	b, err := i.bucket(ctx, o)
	if err != nil {
		return "", nil, err
	}
	x, err := choose(ctx, b, name)
	if err != nil {
		return "", nil, err
	}
	if err := ledger.Open(i.dirs).MkdirAll(i.dirs.Data, 0o755); err != nil {
		return "", nil, err
	}
	temp, done, err := backup.TempDir(i.dirs.Data)
	if err != nil {
		return "", nil, err
	}
	file = filepath.Join(temp, "db.tar.zst")
	if err := backup.WriteContent(file, func(w io.Writer) error { return b.Get(ctx, x, keys, w) }); err != nil {
		done()
		return "", nil, err
	}
	return file, done, nil
}

// choose finds a backup in the bucket.
func choose(ctx context.Context, b *bucket.Bucket, name string) (bucket.Index, error) {
	all, unread := b.List(ctx, "")
	if name == "" && unread == nil && len(all) > 0 {
		return all[len(all)-1], nil
	}
	for _, x := range all {
		if x.Name == name {
			return x, nil
		}
	}
	if unread != nil {
		return bucket.Index{}, unread
	}
	if name == "" {
		return bucket.Index{}, fmt.Errorf("%s has no backup: see --etcd-s3-folder", b)
	}
	return bucket.Index{}, fmt.Errorf("%s has no backup called %s: coracle etcd snapshot list --etcd-s3 shows what there is", b, name)
}

func printRestored(out io.Writer, r *backup.Restore) {
	fmt.Fprintf(out, "The cluster of %s, %s, is in place: start coracle.\n", r.Manifest.Created.Local().Format(time.DateTime), r.Manifest.Node)
	if r.Former != "" {
		fmt.Fprintf(out, "What this server had before is in %s.\n", r.Former)
	}
	for _, path := range r.Machine {
		fmt.Fprintf(out, "%s was missing, and is restored too.\n", path)
	}
	if len(r.Manifest.Members) > 1 {
		fmt.Fprintf(out, "It had the servers %s. Run coracle reset on the others, and join them again.\n", strings.Join(r.Manifest.Members, ", "))
	}
}
