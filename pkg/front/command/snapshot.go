package command

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/localcluster"
)

const (
	snapshotLong = `Seal the state of a local cluster that coracle up has made, for new clusters to begin with: its objects, images,
volumes and pods. The cluster stands still for the moment that it takes, and goes on. Any number of clusters can be made
from a snapshot, each with keys, certificates and tokens of its own that no other one takes.`
	snapshotExample = `
# A cluster with everything that tests need, sealed
coracle up base --image app.tar
kubectl apply -f app.yaml
coracle snapshot-cluster base
coracle down base

# Two clusters from it
coracle up one --from base
coracle up two --from base`
)

// snapshotCommand makes a snapshot of a local cluster. The commands below it list and remove them.
func snapshotCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "snapshot-cluster [flags] [NAME]", Short: "Seal a local cluster's state, for others to begin with", Long: snapshotLong, Example: snapshotExample,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: completeClusters,
	}
	c.Flags().SortFlags = false
	to := c.Flags().String("to", "", "Name of the snapshot (default the cluster's)")
	dir := clustersFlag(c)
	c.RunE = func(c *cobra.Command, names []string) error {
		if err := rootOnly(c.CommandPath()); err != nil {
			return err
		}
		name := localcluster.DefaultName
		if len(names) > 0 {
			name = names[0]
		}
		began := time.Now()
		one, err := localcluster.Store{Dir: *dir}.SnapshotCluster(name, cmp.Or(*to, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "snapshot %s of cluster %s is made after %.1f s; the cluster stood still for %.1f s\n\n  Make a cluster from it   coracle up NAME --from %[1]s\n",
			one.Name, one.Cluster, time.Since(began).Seconds(), one.Paused.Seconds())
		return nil
	}
	c.AddCommand(snapshotListCommand(), snapshotRemoveCommand())
	return c
}

func snapshotListCommand() *cobra.Command {
	c := &cobra.Command{Use: "list", Aliases: []string{"ls"}, Short: "List the snapshots of this machine", Args: NoArgs}
	output := OutputFlag(c, "", "json")
	dir := clustersFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := rootOnly(c.CommandPath()); err != nil {
			return err
		}
		all, err := localcluster.Store{Dir: *dir}.Snapshots()
		if err != nil {
			return err
		}
		return Print(os.Stdout, *output, map[string]any{"snapshots": all}, func(w io.Writer) error {
			return snapshotsText(w, all, time.Now())
		})
	}
	return c
}

func snapshotsText(to io.Writer, all []localcluster.Snapshot, now time.Time) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(os.Stderr, "There is no snapshot; coracle snapshot-cluster makes one.")
		return err
	}
	w := tabwriter.NewWriter(to, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "NAME\tOF\tNODES\tVERSION\tAGE")
	for _, one := range all {
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\n", one.Name, one.Cluster, len(one.Nodes), one.Version, age(now.Sub(one.Created)))
	}
	return w.Flush()
}

func snapshotRemoveCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "rm [flags] SNAPSHOT...", Aliases: []string{"remove"}, Short: "Remove snapshots of local clusters", ValidArgsFunction: completeSnapshots,
	}
	dir := clustersFlag(c)
	c.RunE = func(c *cobra.Command, names []string) error {
		if len(names) == 0 {
			return exitcode.Usagef("say which to remove: coracle snapshot-cluster rm SNAPSHOT...")
		}
		if err := rootOnly(c.CommandPath()); err != nil {
			return err
		}
		for _, name := range names {
			if err := (localcluster.Store{Dir: *dir}).RemoveSnapshot(c.Context(), name); err != nil {
				return err
			}
			fmt.Fprintf(os.Stderr, "snapshot %s is removed\n", name)
		}
		return nil
	}
	return c
}

// fromSnapshot completes a plan from the snapshot that it begins with. servers says that the number of servers was given.
func fromSnapshot(p *localcluster.Plan, s localcluster.Store, servers bool) error {
	if p.From == "" {
		return nil
	}
	one, err := s.LoadSnapshot(p.From)
	if err != nil {
		return err
	}
	p.Nodes = cmp.Or(p.Nodes, len(one.Nodes))
	if !servers {
		p.Servers = one.Servers()
	}
	return nil
}
