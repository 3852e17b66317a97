package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
)

// configCommand shows and checks configurations. It needs no privilege and changes nothing.
func configCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "config [-- FLAGS]",
		Short: "Show the resolved configuration, or check a file",
		Long: `Show every setting as "coracle server" started now, with FLAGS and in this environment, would use it, and where
each is from. As YAML it is a configuration file that gives the same values.`,
		Example: `  # All settings and their origins
  coracle config

  # With a flag more
  coracle config -- --cluster-cidr=10.0.0.0/16

  # Write a file that pins everything, what is derived from this host included
  coracle config -o yaml > config.yaml

  # Check a file before it is used
  coracle config validate /etc/coracle/config.yaml`,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	output := outputFlag(c, "yaml", "json")
	role := roleFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) > 0 && c.ArgsLenAtDash() != 0 {
			return exitcode.Usage{Err: fmt.Errorf("unknown command %q for \"coracle config\"; flags of the %s go after --", args[0], role())}
		}
		return showConfig(c.OutOrStdout(), role(), *output, args)
	}
	c.AddCommand(validateCommand(), defaultsCommand())
	return c
}

// roleFlag adds the flag that says whose settings are meant, to be read after parsing.
func roleFlag(c *cobra.Command) func() config.Role {
	f := &choice{value: string(config.Server), choices: []string{string(config.Server), string(config.Agent)}}
	c.Flags().Var(f, "role", "Whose settings: server or agent")
	_ = c.RegisterFlagCompletionFunc("role", cobra.FixedCompletions(f.choices, cobra.ShellCompDirectiveNoFileComp))
	return func() config.Role { return config.Role(f.value) }
}

func showConfig(out io.Writer, role config.Role, format string, args []string) error {
	cfg, settings, err := config.Inspect(role, args, os.Environ())
	if errors.Is(err, pflag.ErrHelp) {
		_, err := io.WriteString(out, config.Usage(role))
		return err
	}
	if err != nil {
		return err
	}
	switch format {
	case "yaml":
		return config.WriteYAML(out, settings)
	case "json":
		return printAs(out, format, struct {
			Settings []config.Setting `json:"settings"`
			Resolved config.Config    `json:"resolved"`
		}{settings, cfg})
	}
	return config.WriteTable(out, settings)
}

func validateCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "validate FILE",
		Short: "Check a configuration file and its drop-ins",
		Long: `Check FILE and FILE.d/*.yaml as "coracle server --config FILE" would on this host, without regard to the environment.
Every mistake is printed with its line.`,
		Args: cobra.ExactArgs(1),
	}
	role := roleFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		cfg, err := config.Resolve(role(), []string{"--config=" + args[0]}, nil)
		if err != nil {
			return err
		}
		for _, text := range cfg.Remarks {
			fmt.Fprintln(c.ErrOrStderr(), text)
		}
		_, err = fmt.Fprintf(c.OutOrStdout(), "%s is valid\n", args[0])
		return err
	}
	return c
}

func defaultsCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "defaults",
		Short: "Print a configuration file with every setting, commented out",
		Args:  cobra.NoArgs,
	}
	role := roleFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		text, err := config.Example(role())
		if err != nil {
			return err
		}
		_, err = io.WriteString(c.OutOrStdout(), text)
		return err
	}
	return c
}
