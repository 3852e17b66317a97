package main

import (
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/kubectl/pkg/cmd"
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

// kubectlForCompletion is kubectl's own tree of commands when the words to complete are kubectl's, which takes a
// moment to build, and a bare name otherwise.
func kubectlForCompletion(args []string) *cobra.Command {
	asked := len(args) > 2 && (args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd) &&
		slices.Index(args, "kubectl") == 1
	if !asked {
		return &cobra.Command{Use: "kubectl", Short: "Kubernetes' own command line", DisableFlagParsing: true}
	}
	defaultKubeconfig(find())
	os.Args = append([]string{"kubectl", args[0]}, args[2:]...) // kubectl looks here for its plugins
	return cmd.NewDefaultKubectlCommand()
}
