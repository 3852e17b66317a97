package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/kubeconfig"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/version"
	"github.com/coracle-dev/coracle/pkg/localcluster"
	"github.com/coracle-dev/coracle/pkg/machine/host"
	"github.com/coracle-dev/coracle/pkg/machine/payload"
)

const (
	upLong = `Make a local cluster of several nodes on this machine, for trying things out and for tests, without Docker.

Each node is a host of its own, made of namespaces: with its own network, processes and files over a view of this
machine's. The nodes start in the background; the command returns when all of them are Ready. The cluster's context is
entered into your kubeconfig and made the current one, and coracle down takes it out again with everything else.`
	upExample = `
# One server and two agents
coracle up --nodes 3

# A highly available control plane, beside the first cluster
coracle up ha --servers 3 --nodes 5
kubectl --context coracle-ha get nodes

# With images of your own on every node, and settings of your own
coracle up --image app.tar --config coracle.yaml`
	downLong = `Remove a local cluster that coracle up has made, with everything in it: its nodes and their pods, its network, its
files, and its context in your kubeconfig. It works for one that was killed, or was there before the machine was
restarted, too.`
	downExample = `
# The cluster without a name
coracle down

# All of them
coracle down --all`
)

// upCommand makes a local cluster. The commands below it look at it and change it.
func upCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "up [flags] [NAME]", Short: "Make a local cluster of several nodes on this machine", Long: upLong, Example: upExample,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
	}
	var p localcluster.Plan
	flags := c.Flags()
	flags.SortFlags = false
	planFlags(c, &p, "Name of the cluster, which may also be given without the flag (default "+localcluster.DefaultName+")")
	flags.DurationVar(&p.Wait, "wait", 2*time.Minute, "How long the nodes may take to be Ready")
	merge := flags.Bool("kubeconfig", true, "Enter the cluster into your kubeconfig and make it the current context")
	dir := clustersFlag(c)
	c.RunE = func(_ *cobra.Command, names []string) error {
		if len(names) > 0 {
			if p.Name != "" && p.Name != names[0] {
				return exitcode.Usagef("the cluster cannot be called %s and %s", p.Name, names[0])
			}
			p.Name = names[0]
		}
		s := localcluster.Store{Dir: *dir}
		if err := completePlan(&p, s, flags); err != nil {
			return err
		}
		return makeCluster(p, s, *merge)
	}
	c.AddCommand(upListCommand(), upLogsCommand(), upNodeCommand(), upExecCommand())
	return c
}

// planFlags adds the flags that say how a cluster is to be.
func planFlags(c *cobra.Command, p *localcluster.Plan, name string) {
	flags := c.Flags()
	flags.StringVar(&p.Name, "name", "", name)
	flags.IntVarP(&p.Nodes, "nodes", "n", 0, "How many nodes, servers included (default 1, or as many as servers)")
	flags.IntVar(&p.Servers, "servers", 1, "How many of them are servers: 1, or 3 for a control plane that survives the loss of one")
	flags.StringArrayVar(&p.Images, "image", nil, "Archive of container images to import on every node; may be repeated")
	flags.StringVar(&p.Config, "config", "", "Configuration for the servers: a file, or a directory with config.yaml and the files that it names; what is the cluster's holds on all nodes")
	flags.StringVar(&p.From, "from", "", "Snapshot to begin with, as coracle snapshot-cluster makes")
	_, _ = c.MarkFlagFilename("image"), c.MarkFlagFilename("config")
	_ = c.RegisterFlagCompletionFunc("servers", cobra.FixedCompletions([]string{"1", "3", "5"}, cobra.ShellCompDirectiveNoFileComp))
	_ = c.RegisterFlagCompletionFunc("from", completeSnapshots)
}

// completePlan sets defaults of a plan, from its snapshot if there is one, and checks it.
func completePlan(p *localcluster.Plan, s localcluster.Store, flags *pflag.FlagSet) error {
	if flags.Changed("nodes") && p.Nodes < 1 {
		return exitcode.Usagef("--nodes: %d is less than one", p.Nodes)
	}
	if err := fromSnapshot(p, s, flags.Changed("servers")); err != nil {
		return err
	}
	return fillIn(p)
}

// fillIn sets defaults of a plan, and returns its mistakes.
func fillIn(p *localcluster.Plan) error {
	p.Name = cmp.Or(p.Name, localcluster.DefaultName)
	p.Nodes = cmp.Or(p.Nodes, p.Servers)
	for i := range p.Images {
		if err := present(&p.Images[i]); err != nil {
			return fmt.Errorf("--image: %w", err)
		}
	}
	if p.Config != "" {
		if err := present(&p.Config); err != nil {
			return fmt.Errorf("--config: %w", err)
		}
	}
	if err := p.Check(); err != nil {
		return exitcode.With(exitcode.Misuse, err)
	}
	if p.Servers%2 == 0 {
		exitcode.Print(os.Stderr, fmt.Errorf("warning: %d servers survive the loss of no more of them than %d do; use an odd number", p.Servers, p.Servers-1))
	}
	return nil
}

// present makes the path of a file absolute. The file must exist.
func present(path *string) (err error) {
	if _, err := os.Stat(*path); err != nil {
		return err
	}
	*path, err = filepath.Abs(*path)
	return err
}

// makeCluster makes a cluster and prints how to use it.
func makeCluster(p localcluster.Plan, s localcluster.Store, merge bool) error {
	if err := rootOnly("coracle up"); err != nil {
		return err
	}
	ctx, done := interruptible()
	defer done()
	began := time.Now()
	m, err := maker(ctx, s.Dir, func(line string) { fmt.Fprintln(os.Stderr, line) })
	if err != nil {
		return err
	}
	if merge {
		if m.UserConfig, err = userConfig(); err != nil {
			return err
		}
	}
	r, err := m.Up(ctx, p)
	if err != nil {
		return err
	}
	fmt.Fprint(os.Stderr, upText(s, r, merge, time.Since(began)))
	return nil
}

// maker returns a maker of clusters in a directory.
func maker(ctx context.Context, dir string, say func(string)) (m localcluster.Maker, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return m, err
	}
	if err := host.RemountWritable(); err != nil {
		return m, exitcode.With(exitcode.Unfit, err)
	}
	m = localcluster.Maker{Store: localcluster.Store{Dir: dir}, HolderArgs: []string{holderCommand, dir}, Version: version.Version, Report: say}
	var once sync.Once
	m.Payload, err = payload.Locate(ctx, paths.Default(), func(int64, int64) {
		once.Do(func() { say("unpacking, once for this version") })
	})
	return m, err
}

// userConfig is the path of the user's kubeconfig; under sudo it is that of the user who called sudo.
func userConfig() (string, error) {
	caller, err := user.Lookup(os.Getenv("SUDO_USER"))
	if os.Getenv("KUBECONFIG") == "" && err == nil && caller.HomeDir != "" {
		return filepath.Join(caller.HomeDir, ".kube", "config"), nil
	}
	return kubeconfig.UserFile()
}

// upText describes how to use a cluster that has become ready.
func upText(s localcluster.Store, r localcluster.Record, merged bool, took time.Duration) string {
	use, name := "kubectl get nodes", " "+r.Name
	if !merged {
		use = "kubectl --kubeconfig " + s.Kubeconfig(r.Name) + " get nodes"
	}
	if r.Name == localcluster.DefaultName {
		name = ""
	}
	var nodes []string
	for _, n := range r.Nodes {
		nodes = append(nodes, fmt.Sprintf("%s %s", n.Name, n.IP))
	}
	lacks := ""
	if r.OtherNetwork {
		lacks = "\nIts network is to be a plug-in's (flannel-backend: none): without one, nodes are not Ready and pods do not start.\n"
	}
	return fmt.Sprintf(`
Cluster %s is ready after %.1f s, context %s.
%s
  Use it                    %s
  NodePorts are at          %s
  What the nodes say        coracle up logs %s
  Remove it                 coracle down%s
`, r.Name, took.Seconds(), r.Context(), lacks, use, strings.Join(nodes, ", "), r.Name, name)
}

// downCommand removes local clusters.
func downCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "down [flags] [NAME]", Short: "Remove a local cluster", Long: downLong, Example: downExample, ValidArgsFunction: completeClusters,
	}
	c.Flags().SortFlags = false
	all := c.Flags().BoolP("all", "a", false, "Remove all local clusters of this machine")
	dir := clustersFlag(c)
	c.RunE = func(_ *cobra.Command, names []string) error {
		if *all && len(names) > 0 {
			return exitcode.Usagef("--all and the names of clusters cannot be used together")
		}
		return down(localcluster.Store{Dir: *dir}, names, *all)
	}
	return c
}

func down(s localcluster.Store, names []string, all bool) error {
	if err := rootOnly("coracle down"); err != nil {
		return err
	}
	if all {
		records, err := s.List()
		if err != nil {
			return err
		}
		for _, r := range records {
			names = append(names, r.Name)
		}
	} else if len(names) == 0 {
		names = []string{localcluster.DefaultName}
	}
	var errs []error
	for _, name := range names {
		_, err := s.Down(context.Background(), name)
		if err == nil {
			fmt.Fprintf(os.Stderr, "cluster %s is removed\n", name)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// holderCommand is the hidden command of the process that holds a cluster's namespaces.
const holderCommand = "__keep-cluster"

func clustersFlag(c *cobra.Command) *string {
	dir := c.Flags().String("data-dir", localcluster.DefaultDir, "Where local clusters are kept")
	_ = c.MarkFlagDirname("data-dir")
	return dir
}

// interruptible returns a context that ends when a signal asks this process to stop.
func interruptible() (context.Context, func()) {
	i := listen()
	return i.ctx, i.stop
}
