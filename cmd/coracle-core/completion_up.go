package main

import (
	"github.com/spf13/cobra"

	"github.com/coracle-dev/coracle/pkg/localcluster"
)

// upForCompletion is coracle up with what is below it.
func upForCompletion() *cobra.Command {
	c := &cobra.Command{Use: "up", Short: "Make a local cluster of several nodes on this machine", ValidArgsFunction: cobra.NoFileCompletions}
	c.Flags().String("name", "", "Name of the cluster")
	c.Flags().IntP("nodes", "n", 0, "How many nodes, servers included")
	c.Flags().Int("servers", 1, "How many of them are servers")
	c.Flags().StringArray("image", nil, "Archive of container images to import on every node")
	c.Flags().String("config", "", "Configuration file for the servers")
	c.Flags().Duration("wait", 0, "How long the nodes may take to be Ready")
	c.Flags().Bool("kubeconfig", true, "Enter the cluster into your kubeconfig")
	_ = c.RegisterFlagCompletionFunc("servers", cobra.FixedCompletions([]string{"1", "3", "5"}, cobra.ShellCompDirectiveNoFileComp))

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
