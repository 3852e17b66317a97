package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/coracle-dev/coracle/pkg/addons"
	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/diagnose/check"
	"github.com/coracle-dev/coracle/pkg/diagnose/doctor"
	"github.com/coracle-dev/coracle/pkg/diagnose/status"
	"github.com/coracle-dev/coracle/pkg/diagnose/trace"
	"github.com/coracle-dev/coracle/pkg/front/command"
)

// statusCommand prints how coracle is doing on this machine.
func statusCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "status",
		Long: `Show how coracle is doing on this machine: its processes and their components with what they wait for,
the node, certificates, the last failure and the data directory.

It reads what the processes write about themselves, so it answers even when they hang or are dead. It needs root.

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
		report, err := statusReport(c.Context(), here())
		if err != nil {
			return err
		}
		err = command.Print(c.OutOrStdout(), *output, report, func(w io.Writer) error {
			return report.Text(w, time.Now(), addons.Reports())
		})
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
network to the pods of every other node, nodes, pods that do not start, manifests. It changes nothing, and works even when
much is broken, or coracle does not run.

Each finding has a name, under which docs/troubleshooting.md says more. The exit code is 0 if nothing fails, even if
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
		report := check.Run(c.Context(), probes, check.Limit{Answer: doctor.Limit})
		err = command.Print(c.OutOrStdout(), *output, report, func(w io.Writer) error {
			return report.Text(w, term.IsTerminal(int(os.Stdout.Fd())) && os.Getenv("NO_COLOR") == "")
		})
		if err == nil && report.Result == check.Fail {
			return exitcode.Silent(exitcode.Unfit)
		}
		return err
	}
	return c
}

// traceCommand shows the last start as a waterfall.
func traceCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "trace",
		Long: `Show the last start as a waterfall: what each part waited for (dots), when it began, and how long it took until
others could rely on it (bars). Time begins when coracle was executed.

A child process that was restarted later gets a waterfall of its own. It needs root.`,
		Example: `# In the terminal
coracle trace

# As a picture to attach to a bug report
coracle trace --svg start.svg

# For programs
coracle trace -o json`,
		Args: command.NoArgs,
	}
	here := dirFlags(c)
	output := command.OutputFlag(c, "", "json", "yaml")
	svg := c.Flags().String("svg", "", "Write a picture to this file instead")
	_ = c.MarkFlagFilename("svg", "svg")
	c.MarkFlagsMutuallyExclusive("svg", "output")
	c.RunE = func(c *cobra.Command, _ []string) error {
		t, err := trace.Read(here().dirs, time.Now())
		switch {
		case errors.Is(err, fs.ErrPermission):
			return fmt.Errorf("only root may see how coracle started: use sudo (%w)", err)
		case err != nil:
			return err
		case *svg != "":
			return writeSVG(t, *svg)
		}
		return command.Print(c.OutOrStdout(), *output, t, func(w io.Writer) error { return t.Text(w, terminalWidth(100)) })
	}
	return c
}

func writeSVG(t trace.Trace, path string) error {
	var picture bytes.Buffer
	if err := t.SVG(&picture); err != nil {
		return err
	}
	if path == "-" {
		_, err := os.Stdout.Write(picture.Bytes())
		return err
	}
	return atomicfile.Write(path, picture.Bytes(), 0o644)
}

// terminalWidth is the number of columns of the terminal, or other if stdout is none.
func terminalWidth(other int) int {
	if columns, _, err := term.GetSize(int(os.Stdout.Fd())); err == nil && columns > 0 {
		return columns
	}
	return other
}
