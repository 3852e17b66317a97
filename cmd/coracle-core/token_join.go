package main

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/front/command"
)

// joinCommand prints the commands to run on a machine that joins.
func joinCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "join-command",
		Short: "Make a token and print the commands that join a machine with it",
		Long: `Make a token and print the commands that join a machine with it, to paste into a root shell there. They keep the
token out of process lists.`,
		Example: `# For an agent
coracle token join-command

# For a second server, which reaches this one under a name
coracle token join-command --role server --server https://edge-1.example.org:6443`,
		Args: command.NoArgs,
	}
	options := newTokenFlags(c)
	output := command.OutputFlag(c, "text", "text", "json", "yaml")
	server := c.Flags().String("server", "", "URL, name or address under which the machine reaches this server (default is --vip, or else what the cluster is told)")
	return with(c, installation.administer, func(c *cobra.Command, a admin, _ []string) error {
		port := cmp.Or(a.config.API.Port, 6443)
		url, err := serverURL(cmp.Or(*server, netip.AddrPortFrom(a.config.API.Outside().Addr(), port).String()), port)
		if err != nil {
			return exitcode.With(exitcode.Misuse, err)
		}
		t, err := options.make(c.Context(), a)
		if err != nil {
			return err
		}
		line := fmt.Sprintf("coracle %s --server %s --token-file /etc/coracle/token", t.Role, url)
		if *output != "text" {
			return command.PrintAs(c.OutOrStdout(), *output, struct {
				madeToken
				Join    string `json:"server"`
				Command string `json:"command"`
			}{t, url.String(), line})
		}
		fmt.Fprintf(c.ErrOrStderr(), "To join as a service that starts at boot, begin the last line with: coracle install -- %s\n", t.Role)
		_, err = fmt.Fprintf(c.OutOrStdout(), "mkdir -p /etc/coracle && (umask 077 && cat > /etc/coracle/token) <<'EOF'\n%s\nEOF\n%s\n", t.Token, line)
		return err
	})
}
