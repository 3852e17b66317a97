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
	"github.com/coracle-dev/coracle/pkg/front/command"
)

// configCommand shows and checks configurations. It needs no privilege and changes nothing.
func configCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "config [-- FLAGS]",
		Long: `Show every setting as "coracle server" started now, with FLAGS and in this environment, would use it, and where
each is from. As YAML it is a configuration file that gives the same values.`,
		Example: `# All settings and their origins
coracle config

# With a flag more
coracle config -- --cluster-cidr=10.0.0.0/16

# Write a file that pins everything, what is derived from this host included
coracle config -o yaml > config.yaml

# Check a file before it is used
coracle config validate /etc/coracle/config.yaml`,
	}
	output := command.OutputFlag(c, "", "yaml", "json")
	role := roleFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) > 0 && c.ArgsLenAtDash() != 0 {
			return exitcode.Usagef("unknown command %q for \"coracle config\"; flags of the %s go after --", args[0], *role)
		}
		return showConfig(c.OutOrStdout(), config.Role(*role), *output, args)
	}
	c.AddCommand(validateCommand(), defaultsCommand(), flagsCommand())
	return c
}

// roleFlag adds the flag for the role whose settings are shown.
func roleFlag(c *cobra.Command) *string {
	return command.ChoiceFlag(c, "role", "", string(config.Server), "Whose settings: server or agent", string(config.Server), string(config.Agent))
}

func showConfig(out io.Writer, role config.Role, format string, args []string) error {
	cfg, settings, err := config.Inspect(role, args, os.Environ())
	if errors.Is(err, pflag.ErrHelp) {
		_, err = io.WriteString(out, config.Usage(role))
		return err
	}
	if err != nil {
		return err
	}
	switch format {
	case "yaml":
		return config.WriteYAML(out, settings)
	case "json":
		return command.PrintAs(out, format, struct {
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
		cfg, err := config.Resolve(config.Role(*role), []string{"--config=" + args[0]}, nil)
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
		Args:  command.NoArgs,
	}
	role := roleFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		text, err := config.Example(config.Role(*role))
		if err != nil {
			return err
		}
		_, err = io.WriteString(c.OutOrStdout(), text)
		return err
	}
	return c
}
