package command

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/version"
	"github.com/coracle-dev/coracle/pkg/machine/payload"
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

// exitCodes describes the exit codes of all commands.
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

// indent indents the lines of examples.
func indent(text string) string {
	var b strings.Builder
	for line := range strings.Lines(strings.Trim(text, "\n") + "\n") {
		if line != "\n" {
			b.WriteString("  ")
		}
		b.WriteString(line)
	}
	return b.String()
}

// versions is the output of coracle version for programs.
type versions struct {
	Version    string              `json:"version"`
	Commit     string              `json:"commit"`
	Go         string              `json:"go"`
	Platform   string              `json:"platform"`
	Components []payload.Component `json:"components,omitempty"`
}

const (
	versionLong    = `Print the versions of coracle and of the parts that are in it.`
	versionExample = `
# All versions, for programs
coracle version -o json

# The licences of everything that is in this file
coracle version --licenses`
)

func versionCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "version", Short: "Print the versions of coracle and what is in it", Long: versionLong, Example: versionExample, Args: NoArgs,
	}
	c.Flags().SortFlags = false
	format := OutputFlag(c, "", "json", "yaml")
	short := c.Flags().Bool("short", false, "Print coracle's own version only")
	licenses := c.Flags().Bool("licenses", false, "Print the licences of everything that is in this file")
	c.RunE = func(*cobra.Command, []string) error {
		switch {
		case *licenses:
			text, err := payload.Licenses()
			if err != nil {
				return fmt.Errorf("reading the licences: %w", err)
			}
			_, err = os.Stdout.Write(text)
			return err
		case *short:
			fmt.Println(version.Version)
			return nil
		}
		return printVersion(*format)
	}
	return c
}

func printVersion(format string) error {
	v := versions{
		Version:  version.Version,
		Commit:   version.Commit,
		Go:       runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	var err error
	if v.Components, err = payload.Versions(); err != nil {
		// coracle's own version is printed even without the others.
		exitcode.Print(os.Stderr, fmt.Errorf("what else is in this build is not known: %w", err))
	}
	return v.print(format)
}

func (v versions) print(format string) error {
	return Print(os.Stdout, format, v, func(w io.Writer) error {
		fmt.Fprintf(w, "coracle %s (%.12s, %s, %s)\n", v.Version, v.Commit, v.Go, v.Platform)
		for _, c := range v.Components {
			fmt.Fprintf(w, "  %-26s %s\n", c.Name, c.Version)
		}
		return nil
	})
}
