package main

import (
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/coracle-dev/coracle/pkg/addons"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/diagnose/check"
	"github.com/coracle-dev/coracle/pkg/diagnose/doctor"
	"github.com/coracle-dev/coracle/pkg/front/command"
)

// whole returns the configuration with this installation's directories, which it lacks before the first start.
func (i installation) whole() config.Config {
	cfg := i.config
	cfg.Dirs = i.dirs
	return cfg
}

// doctorCommand diagnoses a coracle that runs.
func doctorCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "doctor",
		Long: `Find out what is wrong with the coracle of this machine: what coracle check looks at, and then its processes and their
parts, certificates, etcd, the API and every server, clocks, tunnels, DNS, the kubelet, containerd, images, Services, the
network to the pods of every other node, nodes, pods that do not start, manifests. It changes nothing, and works also when
much is broken, or coracle does not run.

Each finding has a name, under which docs/troubleshooting.md says more. The exit code is 0 if nothing fails, also if
something is to be looked at, and 3 if something fails.`,
		Example: `# What is wrong?
coracle doctor

# Without looking at other nodes
coracle doctor --node

# Only some
coracle doctor --only etcd,pod-network

# For programs
coracle doctor -o json`,
		Args: command.NoArgs,
	}
	here := dirFlags(c)
	output := command.OutputFlag(c, "", "json", "yaml")
	node := c.Flags().Bool("node", false, "Look at this node only, and not at others or at the way to them")
	only := c.Flags().StringSlice("only", nil, "Make only these checks, by name")
	_ = c.RegisterFlagCompletionFunc("only", cobra.FixedCompletions(doctor.Names(addons.All()), cobra.ShellCompDirectiveNoFileComp))
	c.RunE = func(c *cobra.Command, _ []string) error {
		d := &doctor.Doctor{Config: here().whole(), Environ: os.Environ(), OnlyNode: *node, Addons: addons.All()}
		probes, err := check.Only(d.Probes(), *only)
		if err != nil {
			return exitcode.With(exitcode.Misuse, err)
		}
		report := check.Run(c.Context(), probes, doctor.Limit)
		if *output == "" {
			err = report.Text(c.OutOrStdout(), term.IsTerminal(int(os.Stdout.Fd())) && os.Getenv("NO_COLOR") == "")
		} else {
			err = command.PrintAs(c.OutOrStdout(), *output, report)
		}
		if err == nil && report.Result == check.Fail {
			return exitcode.Silent(exitcode.Unfit)
		}
		return err
	}
	return c
}
