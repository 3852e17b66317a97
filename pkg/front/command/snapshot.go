package command

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/localcluster"
)

const (
	snapshotLong = `Seal the state of a local cluster that coracle up has made, for new clusters to begin with: its objects, images,
volumes and pods. The cluster stands still for the moment that it takes, and goes on. Any number of clusters can be made
from a snapshot, each with keys, certificates and tokens of its own that no other one takes.

  coracle snapshot-cluster [NAME] [--to SNAPSHOT]
                                 Make a snapshot of a cluster, with the cluster's name if none is given
  coracle snapshot-cluster list  List the snapshots of this machine
  coracle snapshot-cluster rm SNAPSHOT...
                                 Remove snapshots
  coracle up NAME --from SNAPSHOT
                                 Make a cluster from one`
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

// snapshotCluster makes a snapshot of a local cluster, or does what its first argument asks for.
func snapshotCluster(args []string) error {
	if len(args) > 0 {
		switch args[0] {
		case "list", "ls":
			return snapshotList(args[1:])
		case "rm", "remove":
			return snapshotRemove(args[1:])
		}
	}
	flags := pflag.NewFlagSet("snapshot-cluster", pflag.ContinueOnError)
	flags.SortFlags = false
	to := flags.String("to", "", "Name of the snapshot (default the cluster's)")
	dir := clustersFlag(flags)
	names, err := parseNames(flags, args, 1)
	if err != nil {
		return err
	}
	if err := needRoot("coracle snapshot-cluster"); err != nil {
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

// snapshotList lists the snapshots.
func snapshotList(args []string) error {
	flags := pflag.NewFlagSet("snapshot-cluster list", pflag.ContinueOnError)
	output := flags.StringP("output", "o", "", "json, for programs")
	dir := clustersFlag(flags)
	if err := parse(flags, args); err != nil {
		return err
	}
	if err := needRoot("coracle snapshot-cluster list"); err != nil {
		return err
	}
	all, err := localcluster.Store{Dir: *dir}.Snapshots()
	if err != nil {
		return err
	}
	switch *output {
	case "":
		return snapshotsText(os.Stdout, all, time.Now())
	case "json":
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "  ")
		return e.Encode(map[string]any{"snapshots": all})
	}
	return exitcode.Usagef("--output: %q is not json", *output)
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

// snapshotRemove removes snapshots.
func snapshotRemove(args []string) error {
	flags := pflag.NewFlagSet("snapshot-cluster rm", pflag.ContinueOnError)
	dir := clustersFlag(flags)
	names, err := parseNames(flags, args, 100)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return exitcode.Usagef("say which to remove: coracle snapshot-cluster rm SNAPSHOT...")
	}
	if err := needRoot("coracle snapshot-cluster rm"); err != nil {
		return err
	}
	for _, name := range names {
		if err := (localcluster.Store{Dir: *dir}).RemoveSnapshot(context.Background(), name); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "snapshot %s is removed\n", name)
	}
	return nil
}

// fromSnapshot gives a plan what is not said of it from the snapshot that it begins with.
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
