package command

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/diagnose/cis"
)

const (
	checkCISLong = `Compare the coracle that runs on this machine with the CIS Kubernetes Benchmark v1.12: all recommendations that it calls automated, and those of
the others for which a machine can give evidence. Evidence is read from the machine: the modes and owners of files, and the
flags with which the parts were started (coracle config flags).

What the benchmark leaves to administrators is marked warn, and --profile=cis decides most of it; docs/hardening.md has the
rest. It needs root. The exit code is 0 if nothing fails, and 3 if something does.`
	checkCISExample = `
# Everything, with the evidence
coracle check cis

# What fails, for a program
coracle check cis -o json | jq '.checks[] | select(.result == "fail")'`
)

// checkCISCommand compares the running coracle with a benchmark.
func checkCISCommand() *cobra.Command {
	c := &cobra.Command{Use: "cis", Short: "Compare a coracle that runs with the CIS Kubernetes Benchmark", Long: checkCISLong, Example: checkCISExample, Args: NoArgs}
	output := OutputFlag(c, "", "json", "yaml")
	w := whereFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		cfg, ok, err := w.config()
		if err != nil {
			return err
		}
		if !ok {
			return errors.New("coracle does not run on this machine, and what runs is checked: start it")
		}
		m, err := cis.Open(cfg)
		if err != nil {
			return err
		}
		report := m.Run()
		if err := Print(os.Stdout, *output, report, report.Text); err != nil {
			return err
		}
		if report.Result == cis.Fail {
			return exitcode.Silent(exitcode.Unfit)
		}
		return nil
	}
	return c
}
