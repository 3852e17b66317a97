package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/spf13/cobra"
	"golang.org/x/term"
	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/quantity"
	"github.com/coracle-dev/coracle/pkg/core/version"
	"github.com/coracle-dev/coracle/pkg/front/command"
	"github.com/coracle-dev/coracle/pkg/runtime/images"
)

func imagesExportCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "export IMAGE... --output FILE",
		Short: "Write container images into a file",
		Long: `Write container images of this node into an archive, with all that a node of the same platform needs: for coracle images
import elsewhere, or docker load. The archive is compressed if the name of the file ends in .gz, .tgz or .zst.`,
		Example: `# Everything for a machine without a registry
coracle images export nginx:1.29 redis:8 -o images.tar.zst

# Straight to another machine
coracle images export my-app:1 -o - | ssh edge-1 coracle images import -`,
		Args: func(_ *cobra.Command, names []string) error {
			if len(names) == 0 {
				return exitcode.Usagef("name an image, as in: coracle images export my-app:1 -o my-app.tar")
			}
			return nil
		},
	}
	file := c.Flags().StringP("output", "o", "", "File to write; - is standard output")
	_ = c.MarkFlagFilename("output")
	c.PreRunE = func(*cobra.Command, []string) error {
		if *file == "" || *file == "-" && term.IsTerminal(int(os.Stdout.Fd())) {
			return exitcode.Usagef("say where to, as in: coracle images export my-app:1 -o my-app.tar")
		}
		return nil
	}
	return interruptible(with(c, installation.containerd, func(c *cobra.Command, client *containerd.Client, names []string) error {
		return export(c.Context(), client, names, *file)
	}))
}

// export writes images into a file, which appears only when it is complete.
func export(ctx context.Context, client *containerd.Client, names []string, file string) error {
	found, err := images.Find(ctx, client, names)
	if err != nil {
		return err
	}
	if file == "-" {
		return images.Export(ctx, client, found, os.Stdout)
	}
	var size int64
	err = atomicfile.WriteWith(file, 0o644, func(f *os.File) error {
		to, err := images.Compress(file, f)
		if err != nil {
			return err
		}
		if err := errors.Join(images.Export(ctx, client, found, to), to.Close()); err != nil {
			return err
		}
		size, err = f.Seek(0, io.SeekEnd)
		return err
	})
	if err != nil {
		return err
	}
	fmt.Printf("exported %s into %s (%s)\n", quantity.Count(len(found), "image", "images"), file, quantity.Bytes(size))
	return nil
}

func imagesPruneCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "prune",
		Short: "Remove images that no container uses",
		Long: `Remove the images of this node that no container uses, neither a running nor a stopped one. They are pulled again when
a pod needs them.

Imported images stay, as no registry might have them, unless --imported is given. Those whose archives are in the directory
images of the data directory come back when the archive changes.`,
		Example: "# See what would go\ncoracle images prune --dry-run\n\ncoracle images prune",
		Args:    command.NoArgs,
	}
	dryRun := c.Flags().Bool("dry-run", false, "Only say what would be removed")
	imported := c.Flags().Bool("imported", false, "Remove imported images too")
	return interruptible(with(c, installation.containerd, func(c *cobra.Command, client *containerd.Client, _ []string) error {
		ctx := c.Context()
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
	}))
}
