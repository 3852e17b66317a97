package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/kubectl/pkg/cmd"

	"github.com/coracle-dev/coracle/pkg/front/command"
)

// commands lists the commands that run here.
func commands() []*cobra.Command {
	return []*cobra.Command{
		tokenCommand(),
		nodeCommand(),
		etcdCommand(),
		secretsEncryptCommand(),
		certificateCommand(),
		clusterCommand(),
		configCommand(),
		statusCommand(),
		doctorCommand(),
		dashboardCommand(),
		conformanceCommand(),
		gatewayAPICommand(),
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

// completionCommand prints the scripts that make a shell ask `coracle __complete` what could come next.
func completionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "completion bash|zsh|fish|powershell",
		Long: `Print the script that makes a shell complete coracle's commands and flags, and kubectl's after
"coracle kubectl", names of objects in the cluster included.`,
		Example: `# In this bash only (needs the package bash-completion)
source <(coracle completion bash)

# For every bash of this user
coracle completion bash > ~/.local/share/bash-completion/completions/coracle

# For every zsh of this user, where fpath has ~/.zfunc
coracle completion zsh > ~/.zfunc/_coracle

# For fish
coracle completion fish > ~/.config/fish/completions/coracle.fish

# In this PowerShell
coracle completion powershell | Out-String | Invoke-Expression`,
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		RunE: func(c *cobra.Command, args []string) error {
			out := c.OutOrStdout()
			switch args[0] {
			case "bash":
				return c.Root().GenBashCompletionV2(out, true)
			case "zsh":
				return c.Root().GenZshCompletion(out)
			case "fish":
				return c.Root().GenFishCompletion(out, true)
			case "powershell":
				return c.Root().GenPowerShellCompletionWithDesc(out)
			}
			return fmt.Errorf("no completion for %s", args[0])
		},
	}
}

// kubectlForCompletion is kubectl's own tree of commands, which takes a moment to build, if the words to complete are
// kubectl's, and nothing otherwise.
func kubectlForCompletion(args []string) []*cobra.Command {
	asked := len(args) > 2 && (args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd) &&
		args[1] == "kubectl"
	if !asked {
		return nil
	}
	defaultKubeconfig(find())
	os.Args = append([]string{"kubectl", args[0]}, args[2:]...) // kubectl reads it to find its plugins
	return []*cobra.Command{cmd.NewDefaultKubectlCommand()}
}

// completeValues derives the completion of flags and arguments, of c and of the commands below it, from their declarations: the
// words of a value that takes a few, directories or files for flags that are marked so, files where the usage line names a FILE
// or a COMMAND, and nothing otherwise.
func completeValues(c *cobra.Command) {
	c.DisableFlagParsing = c.DisableFlagParsing && !c.HasLocalFlags() // cobra offers no flags of commands that parse them on their own
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		_, known := c.GetFlagCompletionFunc(f.Name)
		_, directories := f.Annotations[cobra.BashCompSubdirsInDir]
		_, files := f.Annotations[cobra.BashCompFilenameExt]
		if known || directories || files {
			return
		}
		complete := cobra.NoFileCompletions
		if v, ok := f.Value.(interface{ Words() []string }); ok && len(v.Words()) > 0 {
			complete = cobra.FixedCompletions(v.Words(), cobra.ShellCompDirectiveNoFileComp)
		}
		_ = c.RegisterFlagCompletionFunc(f.Name, complete)
	})
	if c.ValidArgsFunction == nil && c.ValidArgs == nil && !strings.Contains(c.Use, "FILE") && !strings.Contains(c.Use, "COMMAND...") {
		c.ValidArgsFunction = cobra.NoFileCompletions
	}
	for _, below := range c.Commands() {
		completeValues(below)
	}
}
