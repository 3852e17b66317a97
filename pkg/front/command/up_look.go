package command

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/localcluster"
)

// upList lists the local clusters.
func upList(args []string) error {
	flags := pflag.NewFlagSet("up list", pflag.ContinueOnError)
	output := flags.StringP("output", "o", "", "json, for programs")
	dir := clustersFlag(flags)
	if err := parse(flags, args); err != nil {
		return err
	}
	records, err := localcluster.Store{Dir: *dir}.List()
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("looking at %s is for root only: put sudo before the command", *dir)
	}
	if err != nil {
		return err
	}
	switch *output {
	case "":
		return listText(os.Stdout, records, time.Now())
	case "json":
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "  ")
		return e.Encode(map[string]any{"clusters": append([]localcluster.Record{}, records...)})
	}
	return exitcode.Usagef("--output: %q is not json", *output)
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

// upLogs prints the logs of a cluster's nodes.
func upLogs(args []string) error {
	flags := pflag.NewFlagSet("up logs", pflag.ContinueOnError)
	dir := clustersFlag(flags)
	names, err := parseNames(flags, args, 2)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		names = []string{localcluster.DefaultName}
	}
	s := localcluster.Store{Dir: *dir}
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

// printLog prints a file with something before each line. One that is not there yet is empty.
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
