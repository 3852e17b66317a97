package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
)

// commands lists coracle's own commands that run here, in the order of help.
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

// root is the whole of coracle's command line. What runs elsewhere (in the front, or as a program of its own in
// this file) is entered too, so that shells complete it.
func root(args []string) *cobra.Command {
	c := &cobra.Command{
		Use:           "coracle",
		Short:         "Kubernetes in one executable",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	c.SetArgs(args)
	pflag.CommandLine = pflag.NewFlagSet("", pflag.ContinueOnError) // Kubernetes registers flags of its own there
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exitcode.Usage{Err: err} })
	c.CompletionOptions.DisableDefaultCmd = true // ours is a command like the others
	c.AddCommand(commands()...)
	c.AddCommand(elsewhere(args)...)
	return c
}

// execute runs one of coracle's own commands and returns the exit code.
func execute(args []string) int {
	err := root(args).Execute()
	var code exitcode.Silent
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	}
	exitcode.Print(os.Stderr, err)
	return exitcode.Code(err)
}
