package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/spf13/cobra"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/quantity"
	"github.com/coracle-dev/coracle/pkg/front/command"
	"github.com/coracle-dev/coracle/pkg/localcluster"
	"github.com/coracle-dev/coracle/pkg/runtime/images"
)

// clusterVariable is the environment variable that coracle run sets to the name of its cluster.
const clusterVariable = "CORACLE_CLUSTER"

func imagesLoadCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "load FILE|IMAGE...",
		Short: "Load container images into all nodes of a local cluster",
		Long: `Load container images into all nodes of a local cluster that coracle up or coracle run has made. A FILE is an archive
as for coracle images import; an IMAGE is one that Docker, podman or nerdctl on this machine has, by its name there.

Each image is read and unpacked once, on one node. The other nodes share its files on the disk.

Without --name it is the cluster of the coracle run that this is called from, else the cluster local, else this machine's
own coracle.`,
		Example: `# What was just built
docker build -t my-app:1 . && sudo coracle images load my-app:1

# An archive, into another cluster
coracle images load my-app.tar --name ha`,
		Args: func(_ *cobra.Command, what []string) error {
			if len(what) == 0 {
				return exitcode.Usagef("name a file or an image, as in: coracle images load my-app.tar")
			}
			return nil
		},
	}
	name := c.Flags().String("name", "", "Name of the cluster")
	dir := c.Flags().String("clusters-dir", localcluster.DefaultDir, "Where local clusters are kept")
	_ = c.MarkFlagDirname("clusters-dir")
	here := dirFlags(c)
	_ = c.RegisterFlagCompletionFunc("name", func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return command.ClusterNames(), cobra.ShellCompDirectiveNoFileComp
	})
	c.RunE = func(c *cobra.Command, what []string) error {
		ctx := c.Context()
		stores, err := loadInto(localcluster.Store{Dir: *dir}, *name, here)
		if err != nil {
			return err
		}
		defer closeAll(stores)
		var failed []error
		for _, w := range what {
			failed = append(failed, load(ctx, stores, w)) // continue with the other images
			if ctx.Err() != nil {
				break
			}
		}
		return errors.Join(failed...)
	}
	return interruptible(c)
}

// loadInto connects to containerd on all nodes of a cluster, or on this machine if there is no cluster.
func loadInto(s localcluster.Store, name string, here func() installation) (stores []images.Store, err error) {
	if os.Geteuid() != 0 {
		return nil, exitcode.With(exitcode.Unfit, errors.New("only root may use the nodes' containerd: put sudo before the command"))
	}
	name = cmp.Or(name, os.Getenv(clusterVariable))
	runtimes, err := s.Runtimes(cmp.Or(name, localcluster.DefaultName))
	var gone *localcluster.NotFoundError
	if name == "" && errors.As(err, &gone) {
		client, errDial := here().containerd()
		if errDial != nil {
			return nil, errors.Join(err, errDial)
		}
		return []images.Store{{Client: client}}, nil
	}
	if err != nil {
		return nil, err
	}
	for _, r := range runtimes {
		client, err := containerd.New(r.Socket, containerd.WithTimeout(5*time.Second))
		if err != nil {
			closeAll(stores)
			return nil, exitcode.With(exitcode.Unreachable, fmt.Errorf("connecting to containerd on %s: %w", r.Node, err))
		}
		stores = append(stores, images.Store{Client: client, Root: r.Root, Own: r.Own})
	}
	return stores, nil
}

func closeAll(stores []images.Store) {
	for _, s := range stores {
		_ = s.Client.Close()
	}
}

// load imports a file, or an image of a container engine, into the first containerd, and shares it with the others.
func load(ctx context.Context, stores []images.Store, what string) error {
	began := time.Now()
	first := stores[0]
	snapshotter := usableSnapshotter(ctx, first.Client)
	found, err := importFrom(ctx, first.Client, what, snapshotter)
	if err != nil {
		return err
	}
	errs := make([]error, len(stores))
	var all sync.WaitGroup
	for i, to := range stores[1:] {
		all.Go(func() { errs[i] = images.Share(ctx, first, to, found, snapshotter) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, img := range found {
		fmt.Printf("loaded %s (%s) into %s in %s\n", img.Name, short(img.Digest.String()), quantity.Count(len(stores), "node", "nodes"), quantity.Seconds(time.Since(began)))
	}
	return nil
}

// importFrom imports a file, or an image of a container engine.
func importFrom(ctx context.Context, client *containerd.Client, what, snapshotter string) ([]images.Image, error) {
	options := images.Options{Snapshotter: snapshotter}
	_, err := os.Stat(what)
	if err == nil {
		return images.Import(ctx, client, what, options)
	}
	if looksLikeFile(what) {
		return nil, err
	}
	engine, err := engineWith(ctx, what)
	if err != nil {
		return nil, err
	}
	save := exec.CommandContext(ctx, engine, "save", what)
	out, err := save.StdoutPipe()
	if err != nil {
		return nil, err
	}
	var stderr strings.Builder
	save.Stderr = &stderr
	if err := save.Start(); err != nil {
		return nil, err
	}
	found, err := images.ImportFrom(ctx, client, what+" of "+engine, out, options)
	if err != nil {
		_ = save.Process.Kill()
	}
	if errSave := save.Wait(); errSave != nil && stderr.Len() > 0 {
		return nil, fmt.Errorf("%s save %s: %s", engine, what, strings.TrimSpace(stderr.String()))
	}
	return found, err
}

// looksLikeFile reports whether the name of something that does not exist is that of a file, not of an image.
func looksLikeFile(what string) bool {
	return filepath.IsAbs(what) || strings.HasPrefix(what, ".") || strings.HasSuffix(what, ".tar") ||
		strings.HasSuffix(what, ".tgz") || strings.HasSuffix(what, ".gz") || strings.HasSuffix(what, ".zst")
}

// engines are the container engines that images are looked for in. Their commands have the same arguments.
var engines = []string{"docker", "podman", "nerdctl"}

// engineWith returns the engine that has an image.
func engineWith(ctx context.Context, image string) (string, error) {
	var asked []string
	for _, engine := range engines {
		if _, err := exec.LookPath(engine); err != nil {
			continue
		}
		out, err := exec.CommandContext(ctx, engine, "image", "inspect", image).CombinedOutput()
		if err == nil {
			return engine, nil
		}
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		asked = append(asked, engine+": "+lines[len(lines)-1])
	}
	if len(asked) == 0 {
		return "", fmt.Errorf("there is no file %s, and none of %s is installed that could have an image of that name", image, strings.Join(engines, ", "))
	}
	return "", fmt.Errorf("there is no file %s, and no image of that name:\n%s", image, strings.Join(asked, "\n"))
}
