package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/diagnose/trace"
	"github.com/coracle-dev/coracle/pkg/front/command"
)

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
		case *output != "":
			return command.PrintAs(c.OutOrStdout(), *output, t)
		}
		return t.Text(c.OutOrStdout(), terminalWidth(100))
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
