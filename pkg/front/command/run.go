package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/localcluster"
)

const (
	runLong = `Run a command with a Kubernetes cluster of its own, which is there for as long as the command runs. It is made for
tests, on a laptop and in CI.

The cluster is made on this machine out of namespaces, without Docker, as coracle up does it. When it can be used, the
command runs with KUBECONFIG set and with kubectl in its PATH, also where none is installed. Then everything is
removed, and coracle ends with the command's exit code. Your own kubeconfig is left alone, and any number of runs can go
on side by side.

With sudo the command runs as the user who called it; --root leaves it to root.

Ctrl-C is for the command. A run that is asked to end, or killed, ends the command and removes the cluster too. If the
cluster does not come up the exit code is 125; it is 126 if the command cannot be run, and 127 if it is not found.`
	runExample = `
# The tests of a project
sudo coracle run -- make e2e

# With images that were built here, and what they need deployed first
coracle run --image app.tar --manifest deploy/ --rollout -- go test ./e2e

# Three servers, and what they say kept for later
coracle run --servers 3 --artifacts out/cluster -- ./failover.sh

# A shell to look around
sudo coracle run -- bash`
)

// runFailed are run's own exit codes, after the habit of env.
const (
	runFailed     = 125
	runNotRun     = 126
	runNotFound   = 127
	runSignalBase = 128
)

// runOptions is what run was asked for.
type runOptions struct {
	plan      localcluster.Plan
	dir       string
	manifests []string
	rollout   bool
	artifacts string
	asRoot    bool
	quiet     bool
	command   []string
}

// runCommand makes a cluster for a command. Every failure of its own has the code 125, whatever its class.
func runCommand(args []string) error {
	o, err := parseRun(args)
	if err == nil {
		err = o.run()
	}
	var code exitcode.Silent
	if err == nil || errors.Is(err, errShown) || errors.As(err, &code) {
		return err
	}
	exitcode.Print(os.Stderr, err)
	return exitcode.Silent(runFailed)
}

func parseRun(args []string) (o runOptions, err error) {
	flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
	flags.SortFlags = false
	flags.SetInterspersed(false)
	p := &o.plan
	flags.StringVar(&p.Name, "name", "", "Name of the cluster (default: one of its own for each run)")
	flags.IntVarP(&p.Nodes, "nodes", "n", 0, "How many nodes, servers included (default 1, or as many as servers)")
	flags.IntVar(&p.Servers, "servers", 1, "How many of them are servers: 1, or 3 for a control plane that survives the loss of one")
	flags.StringArrayVar(&p.Images, "image", nil, "Archive of container images to import on every node; may be repeated")
	flags.StringArrayVarP(&o.manifests, "manifest", "f", nil, "File or directory with objects to apply before the command runs; may be repeated")
	flags.BoolVar(&o.rollout, "rollout", false, "Run the command only when all that was deployed is rolled out")
	flags.StringVar(&p.Config, "config", "", "Configuration file for the servers; what is the cluster's holds on all nodes")
	flags.StringVar(&p.From, "from", "", "Snapshot to begin with, as coracle snapshot-cluster makes")
	disk := flags.Bool("disk", false, "Keep the nodes' data on the disk, for images that are too large for memory")
	flags.DurationVar(&p.Wait, "wait", 2*time.Minute, "How long it may take until the command runs")
	flags.StringVar(&o.artifacts, "artifacts", "", "Directory for logs, events and states, written when the command has ended")
	flags.BoolVar(&o.asRoot, "root", false, "Run the command as root also if sudo was called by somebody else")
	flags.BoolVarP(&o.quiet, "quiet", "q", false, "Say nothing but what goes wrong")
	flags.StringVar(&o.dir, "data-dir", localcluster.DefaultDir, "Where local clusters are kept")
	if o.command, err = parseNames(flags, args, len(args)); err != nil {
		return o, err
	}
	if len(o.command) == 0 {
		return o, exitcode.Usagef("say what to run, as in: coracle run -- make test")
	}
	p.Name, p.Ephemeral = cmp.Or(p.Name, localcluster.RandomName()), !*disk
	if err := fromSnapshot(p, localcluster.Store{Dir: o.dir}, flags.Changed("servers")); err != nil {
		return o, err
	}
	for i := range o.manifests {
		if err := present(&o.manifests[i]); err != nil {
			return o, exitcode.Usagef("--manifest: %w", err)
		}
	}
	if o.artifacts != "" {
		if o.artifacts, err = filepath.Abs(o.artifacts); err != nil {
			return o, err
		}
	}
	return o, fillIn(p)
}

// run makes the cluster, runs the command and removes the cluster.
func (o runOptions) run() error {
	if err := needRoot("coracle run"); err != nil {
		return err
	}
	who, err := o.caller()
	if err != nil {
		return err
	}
	if _, err := exec.LookPath(o.command[0]); err != nil && o.command[0] != "kubectl" {
		return notRunnable(o.command[0], err) // better now than after a cluster was made
	}
	signals := listen()
	defer signals.stop()
	m, err := maker(signals.ctx, o.dir, o.say)
	if err != nil {
		return err
	}
	if o.artifacts != "" {
		m.Logs = who.artifacts(filepath.Join(o.artifacts, "nodes"))
	}
	if err := m.Store.Sweep(signals.ctx); err != nil {
		o.say("warning: " + err.Error())
	}
	began := time.Now()
	s, err := m.Hold(signals.ctx, o.plan)
	if err != nil {
		return signals.explain(err)
	}
	t := &trial{runOptions: o, session: s, who: who, signals: signals, began: began}
	code, err := t.run()
	t.collect(err != nil || code != 0)
	if errClose := s.Close(context.Background()); errClose != nil {
		exitcode.Print(os.Stderr, fmt.Errorf("removing the cluster: %w", errClose))
	}
	switch {
	case err != nil:
		return signals.explain(err)
	case code != 0:
		return exitcode.Silent(code)
	}
	return nil
}

// say tells people what goes on. Standard output is the command's.
func (o runOptions) say(line string) {
	if !o.quiet {
		fmt.Fprintln(os.Stderr, "coracle: "+strings.TrimPrefix(line, "coracle: "))
	}
}
