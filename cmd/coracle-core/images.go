package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/quantity"
	"github.com/coracle-dev/coracle/pkg/front/command"
	"github.com/coracle-dev/coracle/pkg/runtime/images"
)

// imagesCommand imports and lists container images.
func imagesCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "images",
		Long: `Import container images from files, list the images that pods on this node can use without a registry, write them into files,
and remove those that no container uses.

Archives in the directory images of the data directory are imported by themselves, when coracle starts and when they appear.`,
	}
	return command.Group(c, imagesImportCommand(), imagesLoadCommand(), imagesListCommand(), imagesExportCommand(), imagesPruneCommand())
}

func imagesImportCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "import FILE...",
		Short: "Import container images from files",
		Long: `Import container images from files into the containerd of this node. A FILE is an archive made by docker save,
podman save, skopeo or ctr, as it is or compressed with gzip or zstd, or a directory in OCI layout; - is standard input.

Imported images are pinned: the kubelet does not remove them when the disk fills up.`,
		Example: `# An image that was built on this machine
docker save my-app:1 | coracle images import -

# Everything on a stick
coracle images import /media/stick/*.tar.zst`,
		Args: func(_ *cobra.Command, files []string) error {
			if len(files) == 0 {
				return exitcode.Usagef("name a file, as in: coracle images import my-app.tar")
			}
			return nil
		},
	}
	return interruptible(with(c, installation.containerd, func(c *cobra.Command, client *containerd.Client, files []string) error {
		ctx := c.Context()
		snapshotter := usableSnapshotter(ctx, client)
		var failed []error
		for _, file := range files {
			if err := importOne(ctx, client, file, snapshotter); err != nil {
				failed = append(failed, err) // continue with the other files
			}
			if ctx.Err() != nil {
				break
			}
		}
		return errors.Join(failed...)
	}))
}

// importOne imports a file and prints its images.
func importOne(ctx context.Context, client *containerd.Client, file, snapshotter string) error {
	bar := progressBar{name: file, enabled: term.IsTerminal(int(os.Stderr.Fd()))}
	if !bar.enabled {
		fmt.Fprintf(os.Stderr, "importing %s\n", file)
	}
	began := time.Now()
	options := images.Options{Snapshotter: snapshotter, Progress: bar.show}
	var found []images.Image
	var err error
	if file == "-" {
		file = "standard input"
		found, err = images.ImportFrom(ctx, client, file, os.Stdin, options)
	} else {
		found, err = images.Import(ctx, client, file, options)
	}
	bar.clear()
	if err != nil {
		return err
	}
	for _, img := range found {
		fmt.Printf("imported %s (%s) from %s in %s\n", img.Name, short(img.Digest.String()), file, quantity.Seconds(time.Since(began)))
	}
	return nil
}

// progressBar shows on a terminal how far a file has been read.
type progressBar struct {
	name    string
	enabled bool
	shown   time.Time
}

func (b *progressBar) show(read, total int64) {
	const columns, pause = 30, 50 * time.Millisecond
	if !b.enabled || total == 0 || time.Since(b.shown) < pause {
		return
	}
	b.shown = time.Now()
	done := int(read * columns / total)
	fmt.Fprintf(os.Stderr, "\r\033[K%s %s%s %3d%% of %s", b.name, strings.Repeat("█", done), strings.Repeat("░", columns-done),
		read*100/total, quantity.Bytes(total))
}

func (b *progressBar) clear() {
	if !b.shown.IsZero() {
		fmt.Fprint(os.Stderr, "\r\033[K")
	}
}

func imagesListCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the images of this node",
		Long:    "List the images that pods on this node can use without a registry. Pinned ones are never removed by the kubelet.",
		Example: "coracle images list\n\n# Names only\ncoracle images list -o name",
		Args:    command.NoArgs,
	}
	output := command.OutputFlag(c, "", "json", "yaml", "name")
	return with(c, installation.containerd, func(c *cobra.Command, client *containerd.Client, _ []string) error {
		all, err := images.List(c.Context(), client)
		if err != nil {
			return err
		}
		if *output == "json" || *output == "yaml" {
			return command.PrintAs(c.OutOrStdout(), *output, all)
		}
		if *output == "name" {
			for _, img := range all {
				fmt.Fprintln(c.OutOrStdout(), img.Name)
			}
			return nil
		}
		w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 3, ' ', 0)
		fmt.Fprintln(w, "NAME\tDIGEST\tSIZE\tPINNED")
		for _, img := range all {
			fmt.Fprintf(w, "%s\t%s\t%s\t%v\n", img.Name, short(img.Digest.String()), quantity.Bytes(img.Size), img.Pinned)
		}
		return w.Flush()
	})
}

// short abbreviates a digest.
func short(digest string) string {
	const length = len("sha256:") + 12
	return digest[:min(length, len(digest))]
}

// containerd connects to the containerd of this installation.
func (i installation) containerd() (*containerd.Client, error) {
	socket := i.dirs.ContainerdSocket()
	_, err := os.Stat(socket)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("only root may use containerd: use sudo (%w)", err)
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("coracle does not run here: there is no %s; archives in %s are imported when it starts",
			socket, i.dirs.Images())
	case err != nil:
		return nil, err
	}
	client, err := containerd.New(socket, containerd.WithTimeout(5*time.Second))
	if err != nil {
		return nil, fmt.Errorf("connecting to containerd at %s: %w", socket, err)
	}
	return client, nil
}

// usableSnapshotter returns the snapshotter that pods use, to unpack images for it now. It is empty if containerd does not
// report it: then the first pod unpacks the image.
func usableSnapshotter(ctx context.Context, client *containerd.Client) string {
	const want = "overlayfs"
	plugins, err := client.IntrospectionService().Plugins(ctx, "type==io.containerd.snapshotter.v1,id=="+want)
	if err != nil || len(plugins.Plugins) != 1 || plugins.Plugins[0].InitErr != nil {
		return ""
	}
	return want
}
