// Package command is the command line of coracle: every command with its flags, help and completion, and what the commands
// do that need neither Kubernetes nor containerd. The others are delegated to coracle-core.
package command

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unsafe"

	"github.com/spf13/cobra"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
)

// MakesCgroups are the commands that make cgroups, by their first argument.
var MakesCgroups = []string{"server", "agent", "up", "run"}

// tools are commands of other projects that coracle-core contains. They parse their own flags, and a link of that name to
// coracle is the tool.
var tools = []string{"kubectl", "crictl", "ctr"}

// group is a part of the overview.
type group struct {
	title    string
	commands []*cobra.Command
}

// groups lists every command, in the order of help. core holds the commands of coracle-core; without them they are delegated.
func groups(core []*cobra.Command, help *cobra.Command) []group {
	other := func(name, short string) *cobra.Command {
		if i := slices.IndexFunc(core, func(c *cobra.Command) bool { return c.Name() == name }); i >= 0 {
			core[i].Short = short
			return core[i]
		}
		return delegated(name, short)
	}
	return []group{
		{"Run a cluster", []*cobra.Command{serverCommand(), agentCommand(), waitCommand(), runCommand(), upCommand(), downCommand(), snapshotCommand()}},
		{"Use it", []*cobra.Command{
			other("kubectl", "Kubernetes' own command line"),
			other("kubeconfig", "Give kubectl and other clients access to the cluster"),
			other("crictl", "Look into the container runtime through CRI"),
			other("ctr", "Look into containerd"),
		}},
		{"Look at it", []*cobra.Command{
			other("dashboard", "Show the cluster on a page in a browser"),
			other("status", "Show how this machine's part of the cluster is doing"),
			other("doctor", "Find out what is wrong with a coracle that runs"),
			logsCommand(),
			auditCommand(),
			other("trace", "Show where the time of the last start went"),
			other("conformance", "Run Kubernetes' conformance tests, and pack the results for the CNCF"),
			other("support-bundle", "Collect logs, states and facts for a bug report in one file"),
		}},
		{"Manage the cluster", []*cobra.Command{
			other("token", "Make and manage tokens with which machines join the cluster"),
			other("gateway-api", "Install the definitions of the Gateway API"),
			other("node", "Drain nodes, and remove them from the cluster"),
			other("etcd", "Show and look after the etcd that keeps the cluster's data"),
			other("certificate", "Look after certificates"),
			other("secrets-encrypt", "Show and change how Secrets are encrypted in the cluster's datastore"),
			other("cluster", "Rescue the cluster when most servers are lost"),
		}},
		{"Manage this machine", []*cobra.Command{
			checkCommand(),
			other("config", "Show the resolved configuration, or check a file"),
			installCommand(), upgradeCommand(), rollbackCommand(),
			other("images", "Import, list, export and prune container images"),
			killallCommand(), uninstallCommand(),
			other("reset", "Remove everything that coracle made on this machine"),
		}},
		{"Other commands", []*cobra.Command{
			versionCommand(),
			other("completion", "Print a shell's completion script"),
			other("man", "Print a page for man, or write all of them"),
			help,
		}},
	}
}

// Tree is the whole command line. core holds the commands that only coracle-core can run, without Short; in the front it is
// nil, and they are delegated.
func Tree(core []*cobra.Command) *cobra.Command {
	cobra.EnableCommandSorting = false
	root := &cobra.Command{
		Use:                "coracle COMMAND [flags]",
		Short:              "Kubernetes in one executable",
		Long:               "coracle is Kubernetes in one executable.",
		SilenceUsage:       true,
		SilenceErrors:      true,
		DisableSuggestions: true, // unknown makes one line of them
		CompletionOptions:  cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.PersistentFlags().BoolP("help", "h", false, "Help for the command")
	printsVersion := root.Flags().Bool("version", false, "Print the versions")
	root.RunE = func(c *cobra.Command, _ []string) error {
		if *printsVersion {
			return printVersion("")
		}
		return c.Help()
	}
	help := helpCommand()
	root.SetHelpCommand(help) // else cobra adds its own
	for _, g := range groups(core, help) {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, c := range g.commands {
			c.GroupID = g.title
			root.AddCommand(c)
		}
	}
	root.AddCommand(internalCommands()...)
	for _, c := range root.Commands() {
		classify(c)
		if core != nil && !slices.Contains(core, c) {
			disable(c)
		}
	}
	root.SetHelpFunc(printHelp)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return exitcode.Usagef("%w; see '%s --help'", err, c.CommandPath())
	})
	return root
}

// classify makes a wrong number of arguments a mistake of the caller.
func classify(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			err := check(c, args)
			if err != nil && exitcode.ClassOf(err) != exitcode.Misuse {
				err = exitcode.Usagef("%w; see '%s --help'", err, c.CommandPath())
			}
			return err
		}
	}
	for _, below := range c.Commands() {
		classify(below)
	}
}

// disable keeps coracle-core from running a command of the front, which it knows for completion and documentation only.
func disable(c *cobra.Command) {
	c.RunE = func(c *cobra.Command, _ []string) error {
		return exitcode.Usagef("coracle-core does not run %s; call %[1]s", c.CommandPath())
	}
	for _, below := range c.Commands() {
		disable(below)
	}
}

// Execute runs the command that args begin with.
func Execute(root *cobra.Command, args []string) error {
	if len(args) > 1 && strings.HasPrefix(args[0], "-") { // hideTokens and main look for the command in the first place
		return exitcode.Usagef("the command comes before its flags; see '%s --help'", root.Name())
	}
	if _, _, err := root.Find(args); err != nil && !completes(args) {
		return unknown(root, args[0])
	}
	root.SetArgs(args)
	return root.Execute()
}

// completes reports whether a shell asks what could come next.
func completes(args []string) bool {
	return len(args) > 0 && (args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd)
}

// unknown is the error of a command that does not exist, with those that may have been meant.
func unknown(parent *cobra.Command, name string) error {
	parent.SuggestionsMinimumDistance = 2
	if similar := parent.SuggestionsFor(name); len(similar) > 0 {
		return exitcode.Usagef("unknown command %q for %q; did you mean %s?", name, parent.CommandPath(), strings.Join(similar, ", "))
	}
	return exitcode.Usagef("unknown command %q for %q; see '%[2]s --help' for all commands", name, parent.CommandPath())
}

// Group makes c a command that does nothing but hold others.
func Group(c *cobra.Command, below ...*cobra.Command) *cobra.Command {
	c.Use += " COMMAND"
	c.DisableFlagsInUseLine = true
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			return unknown(c, args[0])
		}
		return c.Help()
	}
	c.AddCommand(below...)
	return c
}

// NoArgs is for commands that take flags only.
func NoArgs(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return exitcode.Usagef("%s takes no argument %q; see '%[1]s --help'", c.CommandPath(), args[0])
	}
	return nil
}

// Main runs the command of the front that argv asks for, and returns the exit code.
func Main(argv []string) int {
	argv = hideTokens(argv)
	args := argv[1:]
	switch name := filepath.Base(argv[0]); {
	case slices.Contains(tools, name):
		args = append([]string{name}, args...)
	case name == "coracle-uninstall", name == "coracle-killall":
		args = append([]string{strings.TrimPrefix(name, "coracle-")}, args...)
	}
	if completes(args) {
		return exitcode.Exit(os.Stderr, execCore(args)) // which knows kubectl's commands and the cluster
	}
	return exitcode.Exit(os.Stderr, Execute(Tree(nil), args))
}

// tokenFlags are flags whose values are secret.
var tokenFlags = []string{"--token", "-t", "--agent-token"}

// hideTokens returns a copy of the arguments, and overwrites tokens in the original, which is the memory that every user of the
// machine can read in /proc/PID/cmdline.
func hideTokens(args []string) []string {
	if len(args) < 2 || !slices.Contains([]string{string(config.Server), string(config.Agent), "install", "check"}, args[1]) {
		return args
	}
	out := make([]string, len(args))
	for i, arg := range args {
		out[i] = strings.Clone(arg)
		name, value, given := strings.Cut(arg, "=")
		switch {
		case i > 0 && slices.Contains(tokenFlags, args[i-1]):
			overwrite(arg)
		case given && slices.Contains(tokenFlags, name):
			overwrite(value)
		case strings.HasPrefix(arg, "-t") && len(arg) > 2:
			overwrite(arg[2:])
		}
	}
	return out
}

func overwrite(s string) {
	for i := range unsafe.Slice(unsafe.StringData(s), len(s)) {
		unsafe.Slice(unsafe.StringData(s), len(s))[i] = '*'
	}
}
