package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/definitions"
	"github.com/coracle-dev/coracle/pkg/front/command"
)

// gatewayAPICommand installs the definitions of the Gateway API.
func gatewayAPICommand() *cobra.Command {
	c := &cobra.Command{
		Use: "gateway-api",
		Long: `Install the definitions of the Gateway API in the cluster, so that it knows Gateways and routes. The servers need about 40 MB of
memory for them, which is why they are not there from the start. GatewayClass coracle comes with them, whoever installs them. Definitions
that are newer stay as they are, and those of the experimental channel, which have more fields, unless that is asked for.`,
		Example: `# Once for the cluster, on a server, or with KUBECONFIG set
coracle gateway-api

# With fields that may still change, such as retry of HTTPRoutes
coracle gateway-api --channel experimental`,
		Args: command.NoArgs,
	}
	here := dirFlags(c)
	channel := command.ChoiceFlag(c, "channel", "", definitions.Standard, "Channel of the Gateway API: "+definitions.Standard+" or "+definitions.Experimental, definitions.Standard, definitions.Experimental)
	c.RunE = func(c *cobra.Command, _ []string) error {
		file := os.Getenv(clientcmd.RecommendedConfigPathEnvVar)
		if file == "" {
			a, err := here().administer()
			if err != nil {
				return err
			}
			file = a.kubeconfig()
		}
		return installGatewayAPI(c, file, *channel)
	}
	return interruptible(c)
}

func installGatewayAPI(c *cobra.Command, kubeconfig, channel string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	o, err := definitions.Install(c.Context(), client, channel)
	if err != nil {
		return err
	}
	for _, kept := range o.Kept {
		fmt.Fprintf(c.ErrOrStderr(), "left as it is: %s\n", kept)
	}
	fmt.Fprintf(c.OutOrStdout(), "the Gateway API %s is installed; Gateways of class coracle are served\n", o.Version)
	return nil
}
