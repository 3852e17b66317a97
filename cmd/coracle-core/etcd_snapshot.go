package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/version"
	"github.com/coracle-dev/coracle/pkg/etcd/member"
	"github.com/coracle-dev/coracle/pkg/front/command"
	"github.com/coracle-dev/coracle/pkg/machine/backup"
)

func etcdSnapshotCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "snapshot",
		Short: "Back the cluster up, and make it again of a backup",
		Long: `Back the cluster up, and make it again of a backup. It needs root, on a server.

A backup is one file with all that makes the cluster: etcd's data, the keys, the settings. Who has it has all secrets of
the cluster. Pods' volumes and images are not in it.`,
	}
	return command.Group(c, snapshotSaveCommand(), snapshotListCommand(), snapshotRestoreCommand())
}

func snapshotSaveCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "save [FILE]",
		Short: "Write a backup of the running cluster",
		Long: `Write a backup of the running cluster to FILE, or to the data directory's server/snapshots. Nothing stands still meanwhile.

The file is for root only and is read and checked after it was written. Copy it to another machine.`,
		Example: `# To a disk that is not this machine's
coracle etcd snapshot save /mnt/backup/monday.tar.zst`,
		Args: cobra.MaximumNArgs(1),
	}
	here := dirFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		i := here()
		file := filepath.Join(i.dirs.Snapshots(), "coracle-"+time.Now().UTC().Format("20060102T150405Z")+backup.Suffix)
		if len(args) > 0 {
			file = args[0]
		}
		began := time.Now()
		d, err := i.saveSnapshot(c.Context(), file)
		if err != nil {
			return err
		}
		info, err := os.Stat(file)
		if err != nil {
			return err
		}
		fmt.Fprintf(c.OutOrStdout(), "%s: %s, with %d keys up to revision %d, written and checked in %.1f s\n",
			file, size(info.Size()), d.Keys, d.Revision, time.Since(began).Seconds())
		return nil
	}
	return interruptible(c)
}

// saveSnapshot writes a backup of this server.
func (i installation) saveSnapshot(ctx context.Context, file string) (member.Database, error) {
	var none member.Database
	members, err := i.members()
	if err != nil {
		return none, err
	}
	list, err := members.List(ctx)
	if err != nil {
		return none, err
	}
	dir := filepath.Dir(file)
	if dir == i.dirs.Snapshots() {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return none, fmt.Errorf("making the directory for backups: %w", err)
		}
	}
	temp, done, err := backup.TempDir(dir)
	if err != nil {
		return none, err
	}
	defer done()
	db := filepath.Join(temp, "db")
	found, err := member.Save(ctx, i.dirs.EtcdSocket(), db)
	if err != nil {
		return none, err
	}
	m := backup.Manifest{Version: version.Version, Created: time.Now().UTC(), Node: i.config.Node.Name, Revision: found.Revision}
	for _, one := range list {
		m.Members = append(m.Members, one.Name)
	}
	api := i.config.API
	settings := slices.DeleteFunc([]string{filepath.Join(i.dirs.Config, "config.yaml"), api.AdmissionConfig, api.SchedulerConfig,
		api.EncryptionConfig, api.AuditPolicy}, func(path string) bool { return path == "" })
	files, err := backup.Gather(i.dirs, db, settings)
	if err != nil {
		return none, err
	}
	return found, backup.Write(file, m, files)
}

func snapshotListCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "list [FILE...]",
		Short: "List backups: those in the data directory, or the files that are named",
		Args:  cobra.ArbitraryArgs,
	}
	here := dirFlags(c)
	check := c.Flags().Bool("check", false, "Read each as a whole, and say whether it is as it was written")
	c.RunE = func(c *cobra.Command, files []string) error {
		if len(files) == 0 {
			files, _ = filepath.Glob(filepath.Join(here().dirs.Snapshots(), "*"+backup.Suffix))
		}
		t := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 3, ' ', 0)
		fmt.Fprintln(t, "FILE\tCREATED\tVERSION\tNODE\tREVISION\tSIZE")
		var wrong error
		for _, file := range files {
			read := backup.Read
			if *check {
				read = backup.Verify
			}
			m, err := read(file)
			info, errStat := os.Stat(file)
			if err = errors.Join(err, errStat); err != nil {
				wrong = errors.Join(wrong, err)
				continue
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%s\n", file, m.Created.Format(time.RFC3339), m.Version, m.Node, m.Revision, size(info.Size()))
		}
		return errors.Join(t.Flush(), wrong)
	}
	return c
}

func snapshotRestoreCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "restore FILE",
		Short: "Make the cluster of a backup again, on this machine",
		Long: `Make the cluster of a backup again, on this machine, which was its server or is a new one. Coracle must be stopped; its next
start is that of the cluster as it was. Everything that was written after the backup is lost. What this machine's server
has now is kept, beside the data directory's server.

Other servers of the cluster must be stopped before, and lose their data (coracle reset): they join again afterwards.`,
		Example: `systemctl stop coracle
coracle etcd snapshot restore /mnt/backup/monday.tar.zst
systemctl start coracle`,
		Args: cobra.ExactArgs(1),
	}
	here := dirFlags(c)
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
		r, err := backup.NewRestore(i.dirs, args[0])
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
	return c
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
