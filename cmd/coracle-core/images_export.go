package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/quantity"
	"github.com/coracle-dev/coracle/pkg/runtime/images"
)

func imagesExportCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "export IMAGE... --output FILE",
		Short: "Write container images into a file",
		Long: `Write container images of this node into an archive, with all that a node of the same platform needs: for coracle images
import elsewhere, or docker load. The archive is compressed if the name of the file ends in .gz, .tgz or .zst.`,
		Example: `  # Everything for a machine without a registry
  coracle images export nginx:1.29 redis:8 -o images.tar.zst

  # Straight to another machine
  coracle images export my-app:1 -o - | ssh edge-1 coracle images import -`,
		Args: func(_ *cobra.Command, names []string) error {
			if len(names) == 0 {
				return exitcode.Usage{Err: errors.New("name an image, as in: coracle images export my-app:1 -o my-app.tar")}
			}
			return nil
		},
	}
	here := dirFlags(c)
	file := c.Flags().StringP("output", "o", "", "File to write; - is standard output")
	_ = c.MarkFlagFilename("output")
	c.RunE = func(c *cobra.Command, names []string) error {
		if *file == "" || *file == "-" && term.IsTerminal(int(os.Stdout.Fd())) {
			return exitcode.Usage{Err: errors.New("say where to, as in: coracle images export my-app:1 -o my-app.tar")}
		}
		ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		client, err := dialContainerd(here())
		if err != nil {
			return err
		}
		defer client.Close()
		return export(ctx, client, names, *file)
	}
	return c
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
