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

	"github.com/spf13/cobra"
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

With --output and no command the cluster is there until standard input ends, so that it goes with the program that asked
for it, such as a test. How to reach it is printed to standard output once it can be used.

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
sudo coracle run -- bash

# For a program that holds the other end of a pipe
sudo coracle run --output json`
)

// The exit codes of coracle run itself are those of env.
const (
	runFailed     = 125
	runNotRun     = 126
	runNotFound   = 127
	runSignalBase = 128
)

// runOptions are the flags and the command of coracle run.
type runOptions struct {
	plan      localcluster.Plan
	dir       string
	manifests []string
	rollout   bool
	artifacts string
	asRoot    bool
	quiet     bool
	output    string // format of what is printed without a command, "" for none
	listen    string // address that leads to the API
	command   []string
}

// runCommand makes a cluster for a command. All failures of coracle run itself have the exit code 125.
func runCommand() *cobra.Command { return runCommandWith(runOptions.run) }

// runCommandWith calls run with the options of the flags.
func runCommandWith(run func(runOptions) error) *cobra.Command {
	c := &cobra.Command{
		Use: "run [flags] -- COMMAND...", Short: "Run a command with a cluster of its own, which goes when the command ends", Long: runLong, Example: runExample,
	}
	var o runOptions
	flags := c.Flags()
	flags.SortFlags = false
	flags.SetInterspersed(false)
	planFlags(c, &o.plan, "Name of the cluster (default: one of its own for each run)")
	flags.StringArrayVarP(&o.manifests, "manifest", "f", nil, "File or directory with objects to apply before the command runs; may be repeated")
	flags.BoolVar(&o.rollout, "rollout", false, "Run the command only when all that was deployed is rolled out")
	disk := flags.Bool("disk", false, "Keep the nodes' data on the disk, for images that are too large for memory")
	flags.DurationVar(&o.plan.Wait, "wait", 2*time.Minute, "How long it may take until the command runs")
	flags.StringVar(&o.artifacts, "artifacts", "", "Directory for logs, events and states, written when the command has ended")
	flags.BoolVar(&o.asRoot, "root", false, "Run the command as root, not as the user who called sudo")
	flags.BoolVarP(&o.quiet, "quiet", "q", false, "Say nothing but what goes wrong")
	output := ChoiceFlag(c, "output", "o", "", "Instead of a command: print how to reach the cluster, which is there until standard input ends, as env|json", "env", "json")
	flags.StringVar(&o.listen, "listen", "", "Address that leads to the API too, such as 0.0.0.0:6443; for a port that a container publishes")
	dir := clustersFlag(c)
	_, _ = c.MarkFlagFilename("manifest"), c.MarkFlagDirname("artifacts")
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return exitcode.With(runFailed, c.Parent().FlagErrorFunc()(c, err))
	})
	c.RunE = func(_ *cobra.Command, command []string) error {
		o.command, o.output, o.dir, o.plan.Ephemeral = command, *output, *dir, !*disk
		err := o.complete(flags)
		if err == nil {
			err = run(o)
		}
		var silent exitcode.Silent
		if errors.As(err, &silent) {
			return err
		}
		return exitcode.With(runFailed, err)
	}
	return c
}

// complete sets defaults and checks the options.
func (o *runOptions) complete(flags *pflag.FlagSet) (err error) {
	switch {
	case len(o.command) == 0 && o.output == "":
		return exitcode.Usagef("say what to run, as in: coracle run -- make test")
	case len(o.command) > 0 && o.output != "":
		return exitcode.Usagef("--output is for a run without a command, and %s was given", o.command[0])
	}
	p := &o.plan
	p.Name = cmp.Or(p.Name, localcluster.RandomName())
	for i := range o.manifests {
		if err := present(&o.manifests[i]); err != nil {
			return exitcode.Usagef("--manifest: %w", err)
		}
	}
	if o.artifacts != "" {
		if o.artifacts, err = filepath.Abs(o.artifacts); err != nil {
			return err
		}
	}
	return completePlan(p, localcluster.Store{Dir: o.dir}, flags)
}

// run makes the cluster, runs the command and removes the cluster.
func (o runOptions) run() error {
	if err := rootOnly("coracle run"); err != nil {
		return err
	}
	who, err := o.caller()
	if err != nil {
		return err
	}
	if err := o.findCommand(); err != nil {
		return err
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
	var lines <-chan string
	if o.output != "" {
		lines = readLines(signals)
	}
	began := time.Now()
	s, err := m.Hold(signals.ctx, o.plan)
	if err != nil {
		return signals.explain(err)
	}
	t := &trial{runOptions: o, session: s, who: who, signals: signals, began: began, lines: lines}
	code, err := t.run()
	if !t.passed {
		t.collect(err != nil || code != 0)
	}
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

// findCommand returns an error if there is no such command, before a cluster is made for it.
func (o runOptions) findCommand() error {
	if len(o.command) == 0 || o.command[0] == "kubectl" {
		return nil
	}
	if _, err := exec.LookPath(o.command[0]); err != nil {
		return notRunnable(o.command[0], err)
	}
	return nil
}

// say prints a message to stderr: stdout belongs to the command.
func (o runOptions) say(line string) {
	if !o.quiet {
		fmt.Fprintln(os.Stderr, "coracle: "+strings.TrimPrefix(line, "coracle: "))
	}
}
