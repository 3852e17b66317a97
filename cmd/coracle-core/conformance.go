package main

import (
	"os"
	"os/signal"
	"regexp"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/diagnose/conformance"
	"github.com/coracle-dev/coracle/pkg/diagnose/conformance/results"
	"github.com/coracle-dev/coracle/pkg/front/command"
)

// mostParallel is the highest value of --parallel.
const mostParallel = 64

// conformanceCommand runs Kubernetes' conformance tests.
func conformanceCommand() *cobra.Command {
	var o conformance.Options
	var kubeconfig, context string
	var cleanup bool
	c := &cobra.Command{
		Use: "conformance",
		Long: `Run Kubernetes' conformance tests in a cluster, and pack the results as the CNCF asks for them: https://github.com/cncf/k8s-conformance.

It runs the image that each release of Kubernetes has for this, in a pod with all rights in namespace conformance, prints the
tests' log, fetches it with the JUnit file, and removes what it has made, also when it is interrupted. All tests take an hour or more,
and need two nodes that do nothing else. The command fails if a test fails.

Any cluster will do, not only one of coracle, with an administrator's kubeconfig.`,
		Example: `# All of it, for a certificate
coracle conformance --output results

# A part, in a minute
coracle conformance --focus 'Secrets.*env vars'

# What would run
coracle conformance --dry-run

# After a run that was killed
coracle conformance --cleanup`,
		Args: command.NoArgs,
	}
	here := dirFlags(c)
	c.Flags().StringVar(&o.Focus, "focus", results.CertifiedFocus, "Regular expression of the tests to run")
	c.Flags().StringVar(&o.Skip, "skip", "", "Regular expression of tests to leave out")
	c.Flags().StringVar(&o.Image, "image", "", "Image with the tests (default "+conformance.Repository+" of the cluster's version)")
	c.Flags().IntVar(&o.Parallel, "parallel", 1, "How many tests run at once; those that need the cluster for themselves still run alone")
	c.Flags().BoolVar(&o.DryRun, "dry-run", false, "List the tests, and run none")
	c.Flags().StringVar(&o.Output, "output", ".", "Directory for the results")
	c.Flags().BoolVar(&o.Keep, "keep", false, "Leave the pod in the cluster, to look at it")
	c.Flags().BoolVar(&cleanup, "cleanup", false, "Remove what a killed run has left, and run nothing; this ends a run that is under way")
	c.Flags().StringVar(&kubeconfig, "kubeconfig", "", "Kubeconfig of an administrator (default is the one that coracle kubectl uses)")
	c.Flags().StringVar(&context, "context", "", "Context of the kubeconfig")
	_, _ = c.MarkFlagDirname("output"), c.MarkFlagFilename("kubeconfig")
	c.MarkFlagsMutuallyExclusive("keep", "cleanup")
	c.RunE = func(c *cobra.Command, _ []string) error {
		for name, text := range map[string]string{"focus": o.Focus, "skip": o.Skip} {
			if _, err := regexp.Compile(text); err != nil {
				return exitcode.Usagef("--%s: %w", name, err)
			}
		}
		if o.Parallel < 1 || o.Parallel > mostParallel {
			return exitcode.Usagef("--parallel: %d is not between 1 and %d", o.Parallel, mostParallel)
		}
		// It is caught, so that printing to a broken pipe is an error, which ends the run, and not the end of this process.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
		config, _, err := clientConfig(here(), kubeconfig, context)
		if err != nil {
			return err
		}
		r, err := conformance.Connect(config, o, c.OutOrStdout(), c.ErrOrStderr())
		if err != nil {
			return err
		}
		if cleanup {
			return explain(r.Cleanup(c.Context()))
		}
		return explain(r.Run(c.Context()))
	}
	return interruptible(c, syscall.SIGHUP) // a terminal that is closed must not leave all rights in the cluster
}
