package command

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

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

// upListCommand lists the local clusters.
func upListCommand() *cobra.Command {
	c := &cobra.Command{Use: "list", Aliases: []string{"ls"}, Short: "List the local clusters of this machine", Args: NoArgs}
	output := OutputFlag(c, "", "json")
	dir := clustersFlag(c)
	c.RunE = func(*cobra.Command, []string) error {
		records, err := localcluster.Store{Dir: *dir}.List()
		if errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("looking at %s is for root only: put sudo before the command", *dir)
		}
		if err != nil {
			return err
		}
		if *output == "" {
			return listText(os.Stdout, records, time.Now())
		}
		return PrintAs(os.Stdout, *output, map[string]any{"clusters": append([]localcluster.Record{}, records...)})
	}
	return c
}

func listText(to io.Writer, records []localcluster.Record, now time.Time) error {
	if len(records) == 0 {
		_, err := fmt.Fprintln(os.Stderr, "There is no local cluster; coracle up makes one.")
		return err
	}
	w := tabwriter.NewWriter(to, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "NAME\tSTATE\tSERVERS\tAGENTS\tNETWORK\tAPI\tCONTEXT\tAGE")
	for _, r := range records {
		servers := 0
		for _, n := range r.Nodes {
			if n.Role == localcluster.Server {
				servers++
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\thttps://%s\t%s\t%s\n", r.Name, r.State, servers, len(r.Nodes)-servers, r.Network,
			r.API(), r.Context(), age(now.Sub(r.Created)))
	}
	return w.Flush()
}

// age is a duration in its largest unit, as kubectl has it.
func age(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// upLogsCommand prints the logs of a cluster's nodes.
func upLogsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "logs [flags] NAME [NODE]", Short: "Print what coracle says on the nodes of a local cluster", Args: cobra.MaximumNArgs(2),
		ValidArgsFunction: completeClusterAndNode,
	}
	dir := clustersFlag(c)
	c.RunE = func(_ *cobra.Command, names []string) error { return upLogs(localcluster.Store{Dir: *dir}, names) }
	return c
}

func upLogs(s localcluster.Store, names []string) error {
	if len(names) == 0 {
		names = []string{localcluster.DefaultName}
	}
	r, err := s.Load(names[0])
	if err != nil {
		return err
	}
	if len(names) == 2 {
		n, err := r.Node(names[1])
		if err != nil {
			return err
		}
		return printLog(os.Stdout, s.NodeLog(r.Name, n.Name), "")
	}
	for _, n := range r.Nodes {
		if err := printLog(os.Stdout, s.NodeLog(r.Name, n.Name), "["+strings.TrimPrefix(n.Name, r.Name+"-")+"] "); err != nil {
			return err
		}
	}
	return nil
}

// printLog prints a file with a prefix before each line. A file that does not exist yet is empty.
func printLog(to io.Writer, path, prefix string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if _, err := fmt.Fprintln(to, prefix+lines.Text()); err != nil {
			return err
		}
	}
	return lines.Err()
}
