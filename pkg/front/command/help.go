package command

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
)

// helpCommand prints the help of a command. Exit codes are a topic below it.
func helpCommand() *cobra.Command {
	c := &cobra.Command{Use: "help [COMMAND]", Short: "Help about any command", DisableFlagsInUseLine: true, ValidArgsFunction: CompleteCommands}
	c.RunE = func(c *cobra.Command, args []string) error {
		found, rest, err := c.Root().Find(args)
		switch {
		case err != nil:
			return unknown(c.Root(), args[0])
		case found.DisableFlagParsing && found.RunE != nil && !found.HasLocalFlags():
			return execCore(append(args, "--help"))
		case len(rest) > 0:
			return unknown(found, rest[0])
		}
		return found.Help()
	}
	c.AddCommand(&cobra.Command{
		Use: "exit-codes", Short: "What a script can tell from how a command ended", Args: NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := io.WriteString(c.OutOrStdout(), exitCodes())
			return err
		},
	})
	return c
}

// CompleteCommands completes arguments that name a command of the tree.
func CompleteCommands(c *cobra.Command, given []string, _ string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
	if found, rest, err := c.Root().Find(given); err == nil && len(rest) == 0 {
		for _, below := range found.Commands() {
			if !below.Hidden {
				names = append(names, below.Name())
			}
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// exitCodes says what a script can tell from how a command ended.
func exitCodes() string {
	var b strings.Builder
	b.WriteString("Exit codes of coracle's commands:\n\n")
	exitcode.List(&b)
	b.WriteString(`
coracle run ends with the code of the command that it runs, 128 and the signal's number if a signal ended that; with 126 if
the command cannot be run, 127 if it is not found, and 125 if there was no cluster to run it with.

kubectl, crictl and ctr have their own codes. coracle status has 4 for a cluster that is not whole.
`)
	return b.String()
}

// printHelp prints what a command is and takes.
func printHelp(c *cobra.Command, _ []string) {
	out := new(strings.Builder) // written at once: a reader may close its end early
	fmt.Fprintln(out, cmp.Or(c.Long, c.Short+"."))
	if c.HasParent() {
		list(out, "Commands", c.Commands())
	}
	for _, g := range c.Groups() {
		var members []*cobra.Command
		for _, below := range c.Commands() {
			if below.GroupID == g.ID {
				members = append(members, below)
			}
		}
		list(out, g.Title, members)
	}
	if c.Example != "" {
		fmt.Fprintf(out, "\nExamples:\n%s", indent(c.Example))
	}
	fmt.Fprintf(out, "\nUsage:\n  %s\n", c.UseLine())
	switch flags := c.LocalFlags(); {
	case !c.HasParent():
		fmt.Fprintln(out, "\nUse \"coracle COMMAND --help\" for more information about a command, \"coracle help exit-codes\" for those.")
	case c.Name() == string(config.Server), c.Name() == string(config.Agent):
		fmt.Fprintf(out, "\n%s", config.Usage(config.Role(c.Name())))
	case flags.HasAvailableFlags():
		fmt.Fprintf(out, "\nFlags:\n%s", flags.FlagUsages())
	}
	_, _ = io.WriteString(c.OutOrStdout(), out.String())
}

func list(out io.Writer, title string, commands []*cobra.Command) {
	for _, c := range commands {
		if c.Hidden {
			continue
		}
		if title != "" {
			fmt.Fprintf(out, "\n%s:\n", title)
			title = ""
		}
		fmt.Fprintf(out, "  %-17s %s\n", c.Name(), c.Short)
	}
}

// indent sets examples off, which are written with an indent of two or none.
func indent(text string) string {
	var b strings.Builder
	indented := strings.HasPrefix(text, "  ")
	for line := range strings.Lines(strings.Trim(text, "\n") + "\n") {
		if line != "\n" && !indented {
			b.WriteString("  ")
		}
		b.WriteString(line)
	}
	return b.String()
}
