package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/front"
	"github.com/coracle-dev/coracle/pkg/front/command"
)

// installation is a coracle of this machine.
type installation struct {
	dirs paths.Dirs
	// config is the configuration of its last start, or of the next one; empty if neither is known.
	config config.Config
}

// find returns the installation that the environment names.
func find() installation { return findIn(paths.Dirs{}) }

// findIn returns an installation by its directories: those of the flags, or else of the environment, of the last start on this
// machine, of the configuration file, or the defaults.
func findIn(flags paths.Dirs) installation {
	next := config.Next(os.Environ())
	run := cmp.Or(flags.Run, next.Dirs.Run)
	data := cmp.Or(flags.Data, os.Getenv("CORACLE_DATA_DIR"))
	cfg, _ := config.Load(paths.Dirs{Run: run}.Resolved()) // empty if there was no start since boot, or the user may not read it
	if other := cfg.Dirs; data != "" && other.Data != "" && other.Data != data {
		// Another installation uses the run directory, so this one does not run.
		nowhere := filepath.Join(data, "nowhere")
		return installation{dirs: paths.Dirs{Data: data, Run: nowhere, Config: nowhere, Kubelet: nowhere}}
	}
	if cfg.Dirs.Data == "" {
		cfg = next
	}
	dirs := cfg.Dirs
	dirs.Run, dirs.Data = run, cmp.Or(data, dirs.Data)
	return installation{dirs: dirs, config: cfg}
}

// kubeconfig is the path of the administrator's kubeconfig.
func (i installation) kubeconfig() string {
	if path := i.config.API.KubeconfigPath; path != "" {
		return path
	}
	return filepath.Join(i.dirs.Config, "kubeconfig.yaml")
}

// dirFlags adds the flags that name an installation. The returned function finds it after parsing.
func dirFlags(c *cobra.Command) func() installation {
	var dirs paths.Dirs
	command.DirFlags(c, &dirs.Data, &dirs.Run)
	return func() installation { return findIn(dirs) }
}

// interruptible ends the context of a command at the first SIGINT or SIGTERM, or one of more that the command does not inherit as ignored.
// A later one ends the process, unless it is the same request sent twice.
func interruptible(c *cobra.Command, more ...os.Signal) *cobra.Command {
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		asks := append(slices.DeleteFunc(slices.Clone(more), signal.Ignored), syscall.SIGINT, syscall.SIGTERM)
		ctx, stop := signal.NotifyContext(c.Context(), asks...)
		defer stop()
		context.AfterFunc(ctx, func() { time.AfterFunc(front.SameSignal, stop) })
		c.SetContext(ctx)
		return run(c, args)
	}
	return c
}

// with adds the flags that name an installation to a command, and runs it with what open returns for that installation.
func with[T any](c *cobra.Command, open func(installation) (T, error), run func(*cobra.Command, T, []string) error) *cobra.Command {
	here := dirFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		t, err := open(here())
		if err != nil {
			return err
		}
		if closer, ok := any(t).(io.Closer); ok {
			defer closer.Close()
		}
		return explain(run(c, t, args))
	}
	return c
}

// admin is the administrator's access to the cluster, on a server.
type admin struct {
	installation
	client kubernetes.Interface
	pin    string // pin of the cluster's CA, for tokens
}

// administer returns the administrator's access to the cluster of this server.
func (i installation) administer() (a admin, err error) {
	file := i.kubeconfig()
	access, err := clientcmd.BuildConfigFromFlags("", file)
	switch {
	case errors.Is(err, fs.ErrNotExist) && i.config.Role == config.Agent:
		return a, errors.New("this machine is an agent, and the cluster is managed on its servers: run this there")
	case errors.Is(err, fs.ErrNotExist):
		return a, fmt.Errorf("there is no %s: run this on a server of the cluster, where coracle server has written it", file)
	case errors.Is(err, fs.ErrPermission):
		return a, fmt.Errorf("only root may read %s: use sudo", file)
	case err != nil:
		return a, fmt.Errorf("reading %s: %w", file, err)
	}
	ca := access.CAData // coracle server embeds it
	if a.pin, err = pki.CAPin(ca); err != nil {
		return a, err
	}
	a.installation = i
	access.QPS, access.Timeout = -1, 30*time.Second
	a.client, err = kubernetes.NewForConfig(access)
	return a, err
}

// explain adds advice to frequent errors of the API.
func explain(err error) error {
	var op *net.OpError
	switch {
	case errors.As(err, &op):
		return exitcode.With(exitcode.Unreachable, fmt.Errorf("%w: the API does not answer; start it with coracle server, and see coracle status", err))
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return exitcode.With(exitcode.Unreachable, fmt.Errorf("%w; this needs an administrator's kubeconfig", err))
	}
	return err
}
