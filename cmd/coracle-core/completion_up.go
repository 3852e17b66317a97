package main

import (
	"github.com/spf13/cobra"

	"github.com/coracle-dev/coracle/pkg/localcluster"
)

// upForCompletion is coracle up with what is below it.
func upForCompletion() *cobra.Command {
	c := &cobra.Command{Use: "up", Short: "Make a local cluster of several nodes on this machine", ValidArgsFunction: cobra.NoFileCompletions}
	planFlags(c)
	c.Flags().Bool("kubeconfig", true, "Enter the cluster into your kubeconfig")
	c.Flags().String("from", "", "Snapshot to begin with")
	_ = c.RegisterFlagCompletionFunc("from", snapshotNames)

	list := &cobra.Command{Use: "list", Short: "List the clusters of this machine", ValidArgsFunction: cobra.NoFileCompletions, Run: nothing}
	outputFlag(list, "json")
	logs := &cobra.Command{Use: "logs", Short: "Print what coracle says on the nodes", ValidArgsFunction: clusterAndNode, Run: nothing}
	node := &cobra.Command{Use: "node", Short: "Stop or start a node", ValidArgsFunction: cobra.NoFileCompletions}
	for _, name := range []string{"stop", "start"} {
		node.AddCommand(&cobra.Command{Use: name, ValidArgsFunction: clusterAndNode, Run: nothing})
	}
	exec := &cobra.Command{Use: "exec", Short: "Run a command on a node", ValidArgsFunction: clusterAndNode, Run: nothing}
	c.AddCommand(list, logs, node, exec)
	return c
}

// planFlags are those of the commands that make local clusters.
func planFlags(c *cobra.Command) {
	c.Flags().String("name", "", "Name of the cluster")
	c.Flags().IntP("nodes", "n", 0, "How many nodes, servers included")
	c.Flags().Int("servers", 1, "How many of them are servers")
	c.Flags().StringArray("image", nil, "Archive of container images to import on every node")
	c.Flags().String("config", "", "Configuration file for the servers")
	c.Flags().Duration("wait", 0, "How long the nodes may take to be Ready")
	_ = c.RegisterFlagCompletionFunc("servers", cobra.FixedCompletions([]string{"1", "3", "5"}, cobra.ShellCompDirectiveNoFileComp))
}

// runForCompletion is coracle run. What follows -- is completed as files are.
func runForCompletion() *cobra.Command {
	c := &cobra.Command{Use: "run", Short: "Run a command with a cluster of its own, which goes when the command ends"}
	planFlags(c)
	c.Flags().StringArrayP("manifest", "f", nil, "File or directory with objects to apply before the command runs")
	c.Flags().Bool("rollout", false, "Run the command only when all that was deployed is rolled out")
	c.Flags().String("artifacts", "", "Directory for logs, events and states")
	c.Flags().Bool("root", false, "Run the command as root")
	c.Flags().BoolP("quiet", "q", false, "Say nothing but what goes wrong")
	return c
}

// downForCompletion is coracle down.
func downForCompletion() *cobra.Command {
	c := &cobra.Command{Use: "down", Short: "Remove a local cluster", ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return clusterNames(), cobra.ShellCompDirectiveNoFileComp
	}}
	c.Flags().BoolP("all", "a", false, "Remove all local clusters of this machine")
	return c
}

// nothing makes a command one that can be completed: the front runs it.
func nothing(*cobra.Command, []string) {}

func clusterNames() (names []string) {
	records, err := localcluster.Store{Dir: localcluster.DefaultDir}.List()
	if err != nil {
		return nil // not root
	}
	for _, r := range records {
		names = append(names, r.Name)
	}
	return names
}

// clusterAndNode completes a cluster's name, and then a node's of it.
func clusterAndNode(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var names []string
	switch len(args) {
	case 0:
		names = clusterNames()
	case 1:
		r, err := localcluster.Store{Dir: localcluster.DefaultDir}.Load(args[0])
		if err != nil {
			break
		}
		for _, n := range r.Nodes {
			names = append(names, n.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
