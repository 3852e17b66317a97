package command

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/front"
)

const (
	serverLong = `Run a control plane and a node on this machine: a complete Kubernetes cluster of one, or, with --server, one more
server of a cluster that exists. Three servers or more go on when one of them is lost.

It needs no flag and no file. Every flag is also a key of the config file and an environment variable:
--node-name is node-name: in /etc/coracle/config.yaml and CORACLE_NODE_NAME. A flag wins over the environment, that
over the file.

The command stays in the foreground. Pods go on running when it ends, and are taken over by its next start.`
	serverExample = `
# A cluster with all the defaults
coracle server

# With a name for clients outside, and without DNS
coracle server --tls-san=cluster.example.org --disable=dns

# One more server for the cluster of 10.0.0.1
coracle server --server https://10.0.0.1:6443 --token-file /root/token

# For IPv4 and IPv6
coracle server --cluster-cidr=10.42.0.0/16,fd00:42::/56 --service-cidr=10.43.0.0/16,fd00:43::/112`
	agentLong = `Run a node of a cluster that servers elsewhere control.

The first start joins: it needs the address of a server and a token, which coracle token create prints on one. Everything
about the cluster comes from there. Later starts need neither, and do not need a server that answers: pods that belong
here are started from what the node knows.`
	agentExample = `
# Join
coracle agent --server https://10.0.0.1:6443 --token-file /root/token

# The same, from the environment
CORACLE_SERVER=https://10.0.0.1:6443 CORACLE_TOKEN=C1... coracle agent

# Again, from then on
coracle agent`
)

func serverCommand() *cobra.Command {
	return roleCommand(config.Server, &cobra.Command{
		Use: "server", Short: "Run a control plane and a node on this machine", Long: serverLong, Example: serverExample,
	})
}

func agentCommand() *cobra.Command {
	return roleCommand(config.Agent, &cobra.Command{
		Use: "agent", Short: "Run a node that joins a server", Long: agentLong, Example: agentExample,
	})
}

// roleCommand runs a role. Package config reads its flags, together with files and the environment; here they are for help
// and completion.
func roleCommand(role config.Role, c *cobra.Command) *cobra.Command {
	c.DisableFlagParsing = true
	c.Flags().AddFlagSet(config.Flags(role))
	c.Flags().VisitAll(func(f *pflag.Flag) {
		switch f.Value.Type() {
		case "FILE":
			_ = c.MarkFlagFilename(f.Name)
		case "DIR":
			_ = c.MarkFlagDirname(f.Name)
		}
	})
	c.RunE = func(_ *cobra.Command, args []string) error { return front.Run(role, args) }
	return c
}
