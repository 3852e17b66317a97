package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/kubectl/pkg/cmd"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/manual"
)

// completionCommand prints the scripts that make a shell ask `coracle __complete` what could come next.
func completionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish|powershell",
		Short: "Print a shell's completion script",
		Long: `Print the script that makes a shell complete coracle's commands and flags, and kubectl's after
"coracle kubectl", names of objects in the cluster included.`,
		Example: `  # In this bash only (needs the package bash-completion)
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

// elsewhere lists commands that do not run as part of this tree, for completion only.
func elsewhere(args []string) []*cobra.Command {
	out := []*cobra.Command{
		{Use: "crictl", Short: "Look into the container runtime through CRI", DisableFlagParsing: true},
		{Use: "ctr", Short: "Look into containerd", DisableFlagParsing: true},
		kubectlForCompletion(args),
		roleForCompletion(config.Server, "Run a control plane and a node on this machine"),
		roleForCompletion(config.Agent, "Run a node that joins a server"),
	}
	if pages, err := manual.Front(); err == nil { // its test has it
		out = append(out, frontForCompletion(pages, append(commands(), out...))...)
	}
	for _, c := range out {
		if c.Run == nil && c.RunE == nil {
			c.RunE = func(c *cobra.Command, _ []string) error {
				return fmt.Errorf("coracle-core does not run %s; call coracle %s", c.Name(), c.Name())
			}
		}
	}
	return out
}

// kubectlForCompletion is kubectl's own tree of commands when the words to complete are kubectl's, which takes a
// moment to build, and a bare name otherwise.
func kubectlForCompletion(args []string) *cobra.Command {
	asked := len(args) > 2 && (args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd) &&
		args[1] == "kubectl"
	if !asked {
		return &cobra.Command{Use: "kubectl", Short: "Kubernetes' own command line", DisableFlagParsing: true}
	}
	defaultKubeconfig(find())
	os.Args = append([]string{"kubectl", args[0]}, args[2:]...) // kubectl looks here for its plugins
	return cmd.NewDefaultKubectlCommand()
}

func roleForCompletion(role config.Role, short string) *cobra.Command {
	c := &cobra.Command{Use: string(role), Short: short, ValidArgsFunction: cobra.NoFileCompletions}
	flags, words := config.Flags(role)
	c.Flags().AddFlagSet(flags)
	flags.VisitAll(func(f *pflag.Flag) {
		complete := cobra.NoFileCompletions
		switch kind := f.Value.Type(); {
		case kind == "FILE":
			return // shells complete those by themselves
		case kind == "DIR":
			complete = func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
				return nil, cobra.ShellCompDirectiveFilterDirs
			}
		case len(words[f.Name]) > 0:
			complete = cobra.FixedCompletions(words[f.Name], cobra.ShellCompDirectiveNoFileComp)
		}
		_ = c.RegisterFlagCompletionFunc(f.Name, complete)
	})
	return c
}
