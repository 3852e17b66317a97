package command

import (
	"fmt"
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/localcluster"
)

// upNodeCommand stops or starts a node of a local cluster.
func upNodeCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "node [flags] stop|start NAME NODE", Short: "Pull the plug of a node of a local cluster, or start it again",
		ValidArgsFunction: func(c *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return []string{"stop", "start"}, cobra.ShellCompDirectiveNoFileComp
			}
			return completeClusterAndNode(c, args[1:], word)
		},
	}
	dir := clustersFlag(c)
	c.RunE = func(_ *cobra.Command, args []string) error {
		s := localcluster.Store{Dir: *dir}
		switch {
		case len(args) == 3 && args[0] == "stop":
			return s.StopNode(args[1], args[2])
		case len(args) == 3 && args[0] == "start":
			return s.StartNode(args[1], args[2])
		}
		return exitcode.Usagef("say what to do with which node: coracle up node stop|start NAME NODE")
	}
	return c
}

// upExecCommand becomes a command on a node of a local cluster.
func upExecCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "exec [flags] NAME NODE [COMMAND...]", Short: "Run a command on a node of a local cluster, or a shell",
		ValidArgsFunction: completeClusterAndNode,
	}
	c.Flags().SetInterspersed(false)
	dir := clustersFlag(c)
	c.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) < 2 {
			return exitcode.Usagef("say on which node to run what: coracle up exec NAME NODE [COMMAND...]")
		}
		command := args[2:]
		if len(command) > 0 && command[0] == "--" {
			command = command[1:]
		}
		if len(command) == 0 {
			command = []string{"sh"}
		}
		return upExec(localcluster.Store{Dir: *dir}, args[0], args[1], command)
	}
	return c
}

func upExec(s localcluster.Store, cluster, node string, command []string) error {
	if err := rootOnly("coracle up exec"); err != nil {
		return err
	}
	cmd, err := s.Command(cluster, node, command[0], command[1:]...)
	if err != nil {
		return err
	}
	if err := syscall.Exec(cmd.Path, cmd.Args, append(cmd.Env, "TERM="+os.Getenv("TERM"))); err != nil {
		return fmt.Errorf("going onto the node: %w", err)
	}
	return nil
}

func completeClusters(_ *cobra.Command, given []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(given) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return ClusterNames(), cobra.ShellCompDirectiveNoFileComp
}

// ClusterNames are the local clusters of this machine, for completion: none if they cannot be read.
func ClusterNames() (names []string) {
	records, _ := localcluster.Store{Dir: localcluster.DefaultDir}.List()
	for _, r := range records {
		names = append(names, r.Name)
	}
	return names
}

// completeClusterAndNode completes a cluster's name, and then the name of one of its nodes.
func completeClusterAndNode(c *cobra.Command, given []string, word string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
	if len(given) == 0 {
		return completeClusters(c, given, word)
	}
	r, err := localcluster.Store{Dir: localcluster.DefaultDir}.Load(given[0])
	if err == nil && len(given) == 1 {
		for _, n := range r.Nodes {
			names = append(names, n.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func completeSnapshots(*cobra.Command, []string, string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
	all, _ := localcluster.Store{Dir: localcluster.DefaultDir}.Snapshots()
	for _, one := range all {
		names = append(names, one.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
