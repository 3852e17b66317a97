package command

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/coracle-dev/coracle/pkg/localcluster"
)

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
		list := map[string]any{"clusters": append([]localcluster.Record{}, records...)}
		return Print(os.Stdout, *output, list, func(w io.Writer) error { return listText(w, records, time.Now()) })
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
