package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/coracle-dev/coracle/pkg/front/command"
)

// commands lists the commands that run here.
func commands() []*cobra.Command {
	return []*cobra.Command{
		tokenCommand(),
		nodeCommand(),
		etcdCommand(),
		clusterCommand(),
		configCommand(),
		statusCommand(),
		doctorCommand(),
		kubeconfigCommand(),
		traceCommand(),
		supportBundleCommand(),
		imagesCommand(),
		resetCommand(),
		completionCommand(),
		manCommand(),
	}
}

// root is the whole of coracle's command line, for the commands that run here, for completion and for documentation.
func root(args []string) *cobra.Command {
	pflag.CommandLine = pflag.NewFlagSet("", pflag.ContinueOnError) // Kubernetes registers flags of its own there
	c := command.Tree(append(commands(), kubectlForCompletion(args)...))
	for _, one := range c.Commands() {
		if one.Name() != "kubectl" { // it completes on its own
			completeValues(one)
		}
	}
	return c
}
