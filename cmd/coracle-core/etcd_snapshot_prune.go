package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/front/command"
	"github.com/coracle-dev/coracle/pkg/machine/backup"
	"github.com/coracle-dev/coracle/pkg/machine/backup/bucket"
)

func snapshotDeleteCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "delete NAME...",
		Short: "Delete backups by their names, here and in the bucket",
		Args:  cobra.MinimumNArgs(1),
	}
	return changing(c, func(c *cobra.Command, s saving, names []string) error {
		for _, name := range names {
			if err := s.delete(c, name); err != nil {
				return err
			}
		}
		return nil
	})
}

// delete removes a backup wherever it is.
func (s saving) delete(c *cobra.Command, name string) error {
	all, err := backup.Copies(s.settings.Dir)
	if err != nil {
		return err
	}
	found := false
	for _, one := range all {
		if one.Name == name || filepath.Base(one.File) == name {
			if err := one.Remove(); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			found = true
			fmt.Fprintf(c.OutOrStdout(), "%s is deleted\n", one.File)
		}
	}
	if s.settings.S3.On {
		b, _, err := s.bucket(c.Context(), s.settings)
		if err != nil {
			return err
		}
		there, err := b.List(c.Context(), s.series)
		if err != nil {
			return err
		}
		of := slices.DeleteFunc(there, func(x bucket.Index) bool { return x.Name != name })
		if err := b.Delete(c.Context(), s.series, of); err != nil { // with none of the name too: a killed command may have left its pieces
			return err
		}
		for _, x := range of {
			found = true
			fmt.Fprintf(c.OutOrStdout(), "%s is deleted\n", b.Location(x))
		}
	}
	if !found {
		return fmt.Errorf("this server has no backup called %s: coracle etcd snapshot list shows what there is", name)
	}
	return nil
}

func snapshotPruneCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "prune",
		Short: "Delete the oldest backups that this server has made by schedule",
		Long: `Delete the oldest backups that this server has made by schedule, but as many as --etcd-snapshot-retention, and in the bucket
--etcd-s3-retention. With --name it deletes those of another name, such as on-demand. Servers do this after each backup.`,
		Args: command.NoArgs,
	}
	return changing(c, func(c *cobra.Command, s saving, _ []string) error {
		gone, err := s.pruneHere()
		if err == nil && s.settings.S3.On {
			var there []string
			there, err = s.pruneBucket(c.Context())
			gone = append(gone, there...)
		}
		for _, one := range gone {
			fmt.Fprintf(c.OutOrStdout(), "%s is deleted\n", one)
		}
		return err
	})
}

// changing completes a command that removes backups of this server.
func changing(c *cobra.Command, run func(*cobra.Command, saving, []string) error) *cobra.Command {
	here := dirFlags(c)
	settings := config.SnapshotFlags(c.Flags())
	c.RunE = func(c *cobra.Command, args []string) error {
		i := here()
		o, err := settings(os.Environ(), i.config)
		if err != nil {
			return err
		}
		s, err := i.saving(o)
		if err != nil {
			return err
		}
		done, err := s.lock(c.Context())
		if err != nil {
			return err
		}
		defer done()
		if err := s.series.RemoveLeft(o.Dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		err = run(c, s, args)
		s.tell(c.Context(), nil)
		return err
	}
	return interruptible(c)
}
