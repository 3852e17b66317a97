package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/kubeconfig"
	"github.com/coracle-dev/coracle/pkg/front/command"
)

// kubeconfigCommand prints the administrator's kubeconfig or merges it into the user's.
func kubeconfigCommand() *cobra.Command {
	var o kubeconfigOptions
	c := &cobra.Command{
		Use: "kubeconfig",
		Long: `Print the administrator's kubeconfig, or merge it into yours.

It gives full power over the cluster to whoever holds it. Merging keeps everything else that is in your file and
makes the cluster the one that kubectl uses.`,
		Example: `# Use the cluster from this shell
coracle kubeconfig > cluster.yaml && export KUBECONFIG=$PWD/cluster.yaml

# Add it to ~/.kube/config (or the file that KUBECONFIG names)
coracle kubeconfig --merge

# As an ordinary user
sudo coracle kubeconfig --merge --output ~/.kube/config

# For another machine, under another name
coracle kubeconfig --server https://edge-1.example.org:6443 --name edge-1 > edge-1.yaml`,
		Args: command.NoArgs,
	}
	here := dirFlags(c)
	c.Flags().StringVar(&o.server, "server", "", "URL, name or address under which clients reach the API (default is the loopback)")
	c.Flags().StringVar(&o.name, "name", kubeconfig.DefaultName, "Name of the context, the cluster and the user")
	c.Flags().BoolVar(&o.merge, "merge", false, "Merge into a kubeconfig instead of printing")
	c.Flags().StringVar(&o.output, "output", "", "With --merge, the file to merge into (default $KUBECONFIG or ~/.kube/config)")
	c.Flags().BoolVar(&o.use, "switch", true, "With --merge, make this the current context")
	c.Flags().BoolVar(&o.overwrite, "overwrite", false, "With --merge, replace another cluster of the same name")
	_ = c.MarkFlagFilename("output")
	c.RunE = func(c *cobra.Command, _ []string) error { return o.run(c, here()) }
	return c
}

type kubeconfigOptions struct {
	server, name, output  string
	merge, use, overwrite bool
}

func (o kubeconfigOptions) run(c *cobra.Command, here installation) error {
	for _, flag := range []string{"output", "switch", "overwrite"} {
		if c.Flags().Changed(flag) && !o.merge {
			return exitcode.Usagef("--%s is of use only with --merge", flag)
		}
	}
	ours, err := o.load(here)
	if err != nil {
		return err
	}
	if !o.merge {
		data, err := ours.Encode()
		if err != nil {
			return err
		}
		_, err = c.OutOrStdout().Write(data)
		return err
	}
	if o.output == "" {
		if o.output, err = kubeconfig.UserFile(); err != nil {
			return err
		}
	}
	if err := kubeconfig.Update(o.output, o.mergeInto(ours)); err != nil {
		return err
	}
	fmt.Fprintf(c.ErrOrStderr(), "Merged context %s into %s.\n", o.name, o.output)
	return nil
}

func (o kubeconfigOptions) mergeInto(ours *kubeconfig.File) func(*kubeconfig.File) error {
	return func(theirs *kubeconfig.File) error {
		if lost := theirs.Conflict(ours); lost != "" && !o.overwrite {
			return fmt.Errorf("%s has another cluster %s; choose another name with --name, or replace it with --overwrite", o.output, lost)
		}
		theirs.Merge(ours, o.use)
		return nil
	}
}

// load reads the kubeconfig that the server wrote, and sets the name and the URL of the flags.
func (o kubeconfigOptions) load(here installation) (*kubeconfig.File, error) {
	path := here.kubeconfig()
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no %s: 'coracle server' writes it", path)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("%s may only be read by root: use sudo", path)
	case err != nil:
		return nil, err
	}
	f, err := kubeconfig.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	if o.server != "" {
		server, err := serverURL(o.server, cmp.Or(here.config.API.Port, 6443))
		if err != nil {
			return nil, exitcode.With(exitcode.Misuse, err)
		}
		f.SetServer(server.String())
		if err := pki.ServesAs(here.dirs, server.Hostname()); err != nil {
			fmt.Fprintf(os.Stderr, "Warning: %v\n", err)
		}
	}
	if err := f.Rename(o.name); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return f, nil
}

// serverURL parses a URL, HOST:PORT, or HOST, which gets the given port.
func serverURL(s string, port uint16) (*url.URL, error) {
	if !strings.Contains(s, "://") {
		if _, _, err := net.SplitHostPort(s); err != nil {
			s = net.JoinHostPort(strings.Trim(s, "[]"), strconv.Itoa(int(port)))
		}
		s = "https://" + s
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("--server: %q is not an https URL, a name or an address", s)
	}
	return u, nil
}
