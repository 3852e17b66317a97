package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
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
		keys, err := i.openingKeys(*open)
		if err != nil {
			return err
		}
		what := ""
		if len(args) > 0 {
			what = args[0]
		}
		file, done, err := i.findBackup(c, o, keys, what)
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
func (i installation) findBackup(c *cobra.Command, o config.Snapshots, keys backup.Keys, what string) (file string, done func(), err error) {
	info, err := os.Stat(cmp.Or(what, o.Dir))
	switch {
	case o.S3.On && (what == "" || err != nil):
		return i.download(c, o, keys, what)
	case err != nil:
		return "", nil, err
	case !info.IsDir():
		return what, func() {}, nil
	}
	dir := cmp.Or(what, o.Dir)
	all, err := backup.Copies(dir)
	if err != nil {
		return "", nil, err
	}
	if len(all) == 0 {
		return "", nil, fmt.Errorf("%s has no backup", dir)
	}
	return newest(c.ErrOrStderr(), all, backup.Copy.About).File, func() {}, nil
}

// newest returns the newest backup that was tried, or if there is none, the newest one.
func newest[B any](warnings io.Writer, all []B, about func(B) backup.Summary) B {
	for _, b := range slices.Backward(all) {
		if !about(b).Tried.IsZero() {
			return b
		}
	}
	last := all[len(all)-1]
	fmt.Fprintf(warnings, "warning: none of the %d backups there is known to have been tried; %s is the newest\n", len(all), about(last).Name)
	return last
}

// download reads a backup from the bucket, the newest if name is "".
func (i installation) download(c *cobra.Command, o config.Snapshots, keys backup.Keys, name string) (file string, done func(), err error) {
	ctx := c.Context()
	if o.S3.ConfigSecret != "" {
		return "", nil, fmt.Errorf("the Secret %s cannot be read, because coracle must be stopped for this: give what it has as --etcd-s3-... and with --etcd-s3-config-secret=", o.S3.ConfigSecret)
	}
	if err := backup.CheckStopped(i.dirs); err != nil {
		return "", nil, err
	}
	b, err := bucket.Open(o.S3)
	if err != nil {
		return "", nil, err
	}
	x, err := choose(c, b, name)
	if err != nil {
		return "", nil, err
	}
	if err := ledger.Open(i.dirs).MkdirAll(i.dirs.Data, 0o755); err != nil {
		return "", nil, err
	}
	if err := backup.CheckRoom(i.dirs.Data, x.Size); err != nil {
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

// choose finds a backup in the bucket, the newest if name is "".
func choose(c *cobra.Command, b *bucket.Bucket, name string) (x bucket.Index, err error) {
	all, unread := b.ListAll(c.Context())
	if len(all) == 0 && unread != nil {
		return x, unread
	}
	if len(all) == 0 {
		return x, fmt.Errorf("%s has no backup: see --etcd-s3-folder", b)
	}
	if unread != nil {
		fmt.Fprintf(c.ErrOrStderr(), "warning: not all backups in the bucket can be read: %v\n", unread)
	}
	if name != "" {
		for _, x := range all {
			if x.Name == name {
				return x, nil
			}
		}
		return x, fmt.Errorf("%s has no backup called %s: coracle etcd snapshot list --etcd-s3 shows what there is", b, name)
	}
	for _, one := range all {
		if one.Cluster != all[0].Cluster {
			return x, fmt.Errorf("%s has backups of several clusters, or of one from before and after coracle certificate rotate-ca: "+
				"say which one, as coracle etcd snapshot list --etcd-s3 shows them", b)
		}
	}
	return newest(c.ErrOrStderr(), all, bucket.Index.About), nil
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
