package main

import (
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/coracle-dev/coracle/pkg/addons"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/diagnose/status"
	"github.com/coracle-dev/coracle/pkg/front/command"
)

// statusCommand prints how coracle is doing on this machine.
func statusCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "status",
		Long: `Show how coracle is doing on this machine: its processes and their components with what they wait for,
the node, certificates, the last failure and the data directory.

It reads what the processes write about themselves, so it answers also when they hang or are dead. It needs root.

The exit code is 0 if all is ready, 1 if coracle does not run here, and 4 if it is starting or something is missing.`,
		Example: `# How is it doing?
coracle status

# For programs
coracle status -o json

# Restart a service of one's own once the cluster is whole again
coracle status > /dev/null && systemctl restart my-service`,
		Args: command.NoArgs,
	}
	here := dirFlags(c)
	output := command.OutputFlag(c, "", "json", "yaml")
	c.RunE = func(c *cobra.Command, _ []string) error {
		i := here()
		from := status.Sources{Dirs: i.dirs, Config: i.config}
		// Agents have no administrator's kubeconfig, but the kubelet's can read the node.
		if kubeconfig := i.dirs.NodeConfig("kubelet.kubeconfig"); readable(kubeconfig) && i.config.Node.Name != "" {
			from.Node = status.AskAPI(kubeconfig, i.config.Node.Name)
		}
		report, err := status.Collect(c.Context(), from)
		if err != nil {
			return err
		}
		if *output == "" {
			err = report.Text(c.OutOrStdout(), time.Now(), addons.Reports())
		} else {
			err = command.PrintAs(c.OutOrStdout(), *output, report)
		}
		switch {
		case err != nil:
			return err
		case report.Health == status.Stopped:
			return exitcode.Silent(1)
		case report.Health != status.Ready:
			return exitcode.Silent(exitcode.TimedOut)
		}
		return nil
	}
	return c
}

// readable reports whether the caller may read a file.
func readable(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	f.Close()
	return true
}
