package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/etcd/authorities"
	"github.com/coracle-dev/coracle/pkg/etcd/encryption"
	"github.com/coracle-dev/coracle/pkg/front/command"
)

func certificateRotateCACommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "rotate-ca",
		Short: "Replace the cluster's certificate authorities, and the key for tokens",
		Long: `Replace the cluster's three certificate authorities and the key for tokens of service accounts while everything runs. It is run on any server.

The command ends when all running servers sign with the new ones. The former ones are accepted further, and have signed a statement for the new ones, so
that nodes, pods and users that know only these go on; agents and the kubelets' certificates follow within minutes. When nobody uses the former ones any
more, rotate-ca --finish has them dropped; it names who does. A command that was interrupted is simply repeated.`,
		Example: `# Make new authorities
coracle certificate rotate-ca
# Later: drop the former ones
coracle certificate rotate-ca --finish
# Use a new intermediate authority of the company: ca.crt, with its chain, and ca.key
coracle certificate rotate-ca --path /root/new-authority`,
		Args: command.NoArgs,
	}
	finish := c.Flags().Bool("finish", false, "Drop the former authorities, unless somebody uses them still")
	force := c.Flags().Bool("force", false, "With --finish: drop them although somebody uses them still")
	path := c.Flags().String("path", "", "Directory with the new files, laid out as server/pki: any of ca, front-proxy-ca and etcd/ca, each .crt with its .key, and sa.key (default is to make all)")
	_ = c.MarkFlagDirname("path")
	c.MarkFlagsMutuallyExclusive("finish", "path")
	return interruptible(with(c, installation.authorities, func(c *cobra.Command, e *encryptedSecrets, _ []string) error {
		change := authorities.Change{
			Change: e.change(c.OutOrStdout()), Secrets: e.Store, Dirs: e.dirs,
			All: e.stopped,
		}
		seals, err := encryption.NewSeals(e.dirs, pki.SealAuthorities)
		if err != nil {
			return err
		}
		change.Store = authorities.Store(e.Client, e.Prefix, seals)
		switch {
		case *finish:
			return change.Finish(c.Context(), *force)
		case *force:
			return exitcode.Usagef("--force goes with --finish only")
		}
		given, err := readAuthorities(*path)
		if err != nil {
			return err
		}
		return change.Rotate(c.Context(), given)
	}))
}

// authorities returns access to the record of the authorities.
func (i installation) authorities() (*encryptedSecrets, error) {
	if i.config.Datastore.External() {
		return nil, errors.New("the authorities of a cluster with an external datastore cannot be replaced: it belongs to them")
	}
	return i.records()
}

// stopped returns the members of etcd that do not answer.
func (e *encryptedSecrets) stopped(ctx context.Context) (names []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, etcdTimeout)
	defer cancel()
	status, err := e.members.Status(ctx)
	if err != nil {
		return nil, err
	}
	for _, one := range status.Members {
		if !one.Answers {
			names = append(names, one.Name)
		}
	}
	return names, nil
}

// readAuthorities reads the new files in a directory; none if it is "".
func readAuthorities(dir string) (map[string][]byte, error) {
	if dir == "" {
		return nil, nil
	}
	given := map[string][]byte{}
	for _, name := range pki.KeyFiles() {
		data, err := os.ReadFile(filepath.Join(dir, name))
		switch {
		case err == nil:
			given[name] = data
		case !errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("reading the new authorities: %w", err)
		}
	}
	if len(given) == 0 {
		return nil, fmt.Errorf("there is no file of an authority in %s: it takes ca.crt and ca.key, front-proxy-ca.crt and .key, etcd/ca.crt and .key, sa.key, or some of them", dir)
	}
	return given, nil
}
