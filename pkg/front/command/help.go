package command

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
)

// errShown is what a helpWanted is.
var errShown = errors.New("help was asked for")

// helpWanted says that a command was asked for its help instead of for what it does.
type helpWanted struct {
	command string         // with those above it
	flags   *pflag.FlagSet // nil if usage has them
	usage   string
}

func (*helpWanted) Error() string { return errShown.Error() }

// Is makes it errShown.
func (*helpWanted) Is(target error) bool { return target == errShown }

// String is the help.
func (h *helpWanted) String() string {
	if h.flags != nil {
		return describe(h.command, h.flags.FlagUsages())
	}
	return describe(h.command, h.usage)
}

// parse reads a command's flags. It takes no other arguments.
func parse(flags *pflag.FlagSet, args []string) error {
	flags.Usage = func() {}
	err := flags.Parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return &helpWanted{command: flags.Name(), flags: flags}
	case err != nil:
		return exitcode.Usagef("%w\nSee 'coracle %s --help' for usage.", err, flags.Name())
	case flags.NArg() > 0:
		return exitcode.Usagef("%s takes no argument %q\nSee 'coracle %s --help' for usage.", flags.Name(), flags.Arg(0), flags.Name())
	}
	return nil
}

// help prints the overview, or a command's own help.
func help(args []string) error {
	switch {
	case len(args) == 0:
		fmt.Fprint(os.Stdout, overview())
		return nil
	case args[0] == "exit-codes":
		fmt.Print(exitCodes())
		return nil
	}
	return dispatch("coracle", append(slices.Clone(args), "--help"))
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

// overview lists all commands by group.
func overview() string {
	var b strings.Builder
	b.WriteString("coracle is Kubernetes in one executable.\n")
	group := ""
	for _, c := range commands() {
		if c.group != group {
			group = c.group
			fmt.Fprintf(&b, "\n%s:\n", group)
		}
		fmt.Fprintf(&b, "  %-17s %s\n", c.name, c.short)
	}
	b.WriteString("\nUsage:\n  coracle COMMAND [flags]\n\nUse \"coracle COMMAND --help\" for more information about a command, \"coracle help exit-codes\" for those.\n")
	return b.String()
}

// describe is a command's help text.
func describe(name, flags string) string {
	all := append(commands(), subcommands()...)
	c := all[slices.IndexFunc(all, func(c command) bool { return c.name == name })]
	text := c.long
	if text == "" {
		text = c.short + "."
	}
	out := text + "\n"
	if c.example != "" {
		out += "\nExamples:\n" + indent(c.example)
	}
	out += "\nUsage:\n  " + synopsis(name) + "\n"
	if flags != "" {
		out += "\n" + flagsTitle(flags) + strings.TrimRight(flags, "\n") + "\n"
	}
	return out
}

// synopsis is what one types.
func synopsis(name string) string {
	out := "coracle " + name + " [flags]"
	if arguments := arguments()[name]; arguments != "" {
		out += " " + arguments
	}
	return out
}

// arguments are what commands take besides flags.
func arguments() map[string]string {
	return map[string]string{
		"up": "[NAME]", "up logs": "NAME [NODE]", "up node": "stop|start NAME NODE", "up exec": "NAME NODE [COMMAND...]", "down": "[NAME]",
		"snapshot-cluster": "[NAME]", "snapshot-cluster rm": "SNAPSHOT...",
		"run": "-- COMMAND...", "check": "[server|agent] [FLAGS OF IT]", "install": "-- [server|agent FLAGS OF IT]", "upgrade": "[FILE|VERSION]",
	}
}

// subcommands are below the commands that run here. What they do is in the long text of those above them.
func subcommands() []command {
	return []command{
		{name: "up list", short: "List the local clusters of this machine"},
		{name: "up logs", short: "Print what coracle says on the nodes of a local cluster"},
		{name: "up node", short: "Pull the plug of a node of a local cluster, or start it again"},
		{name: "up exec", short: "Run a command on a node of a local cluster, or a shell"},
		{name: "snapshot-cluster list", short: "List the snapshots of this machine"},
		{name: "snapshot-cluster rm", short: "Remove snapshots of local clusters"},
	}
}

// flagsTitle is for flags that have no groups with titles of their own.
func flagsTitle(flags string) string {
	if strings.HasPrefix(flags, " ") {
		return "Flags:\n"
	}
	return ""
}

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

// helpRole is the help of server and agent.
func helpRole(role config.Role) error {
	return &helpWanted{command: string(role), usage: config.Usage(role)}
}
