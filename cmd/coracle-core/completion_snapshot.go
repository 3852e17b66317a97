package main

import (
	"github.com/spf13/cobra"

	"github.com/coracle-dev/coracle/pkg/localcluster"
)

// snapshotForCompletion is coracle snapshot-cluster with what is below it.
func snapshotForCompletion() *cobra.Command {
	c := &cobra.Command{Use: "snapshot-cluster", Short: "Seal a local cluster's state, for others to begin with",
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return clusterNames(), cobra.ShellCompDirectiveNoFileComp
		}}
	c.Flags().String("to", "", "Name of the snapshot")
	list := &cobra.Command{Use: "list", Short: "List the snapshots of this machine", ValidArgsFunction: cobra.NoFileCompletions, Run: nothing}
	outputFlag(list, "json")
	c.AddCommand(list, &cobra.Command{Use: "rm", Short: "Remove snapshots", ValidArgsFunction: snapshotNames, Run: nothing})
	return c
}

// snapshotNames completes a snapshot's name.
func snapshotNames(*cobra.Command, []string, string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
	all, err := localcluster.Store{Dir: localcluster.DefaultDir}.Snapshots()
	if err == nil {
		for _, one := range all {
			names = append(names, one.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
