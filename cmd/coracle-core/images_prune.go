package main

import (
	"errors"
	"fmt"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-dev/coracle/pkg/core/quantity"
	"github.com/coracle-dev/coracle/pkg/core/version"
	"github.com/coracle-dev/coracle/pkg/front/command"
	"github.com/coracle-dev/coracle/pkg/runtime/images"
)

func imagesPruneCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "prune",
		Short: "Remove images that no container uses",
		Long: `Remove the images of this node that no container uses, neither a running nor a stopped one. They are pulled again when
a pod needs them.

Imported images stay, as no registry might have them, unless --imported is given. Those whose archives are in the directory
images of the data directory come back when the archive changes.`,
		Example: "  # See what would go\n  coracle images prune --dry-run\n\n  coracle images prune",
		Args:    command.NoArgs,
	}
	here := dirFlags(c)
	dryRun := c.Flags().Bool("dry-run", false, "Only say what would be removed")
	imported := c.Flags().Bool("imported", false, "Remove imported images too")
	c.RunE = func(c *cobra.Command, _ []string) error {
		ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		client, err := dialContainerd(here())
		if err != nil {
			return err
		}
		defer client.Close()
		conn, ok := client.Conn().(grpc.ClientConnInterface)
		if !ok {
			return errors.New("containerd's client does not speak gRPC")
		}
		runtime := images.Runtime{RuntimeServiceClient: cri.NewRuntimeServiceClient(conn), ImageServiceClient: cri.NewImageServiceClient(conn)}
		own, _, _ := strings.Cut(version.PauseImage, "/")
		unused, err := images.FindUnused(ctx, runtime, *imported, own+"/")
		if err != nil {
			return err
		}
		verb, freed := "would remove", "would free"
		if !*dryRun {
			verb, freed = "removed", "freed"
			unused, err = images.Remove(ctx, runtime, unused)
		}
		var total uint64
		for _, u := range unused {
			total += u.Size
			fmt.Fprintf(c.OutOrStdout(), "%s %s (%s)\n", verb, strings.Join(u.Names, ", "), quantity.Bytes(int64(u.Size)))
		}
		fmt.Fprintf(c.OutOrStdout(), "%s %s of %s\n", freed, quantity.Bytes(int64(total)), quantity.Count(len(unused), "image", "images"))
		return err
	}
	return c
}
