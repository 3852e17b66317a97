package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/etcd/encryption"
	"github.com/coracle-dev/coracle/pkg/etcd/member"
	"github.com/coracle-dev/coracle/pkg/etcd/members"
	"github.com/coracle-dev/coracle/pkg/front/command"
)

// secretsEncryptCommand shows and changes the keys with which Secrets are encrypted in etcd. Its words are k3s's.
func secretsEncryptCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "secrets-encrypt",
		Long: `Show and change how Secrets are encrypted in the cluster's datastore. It needs root, on any server.

New clusters encrypt Secrets from the start. In a cluster that is older, or where it was disabled, enable does it. Nothing has to be
restarted: all servers take new keys while they run, and a command ends when they have. One that was interrupted is simply
repeated.`,
	}
	step := func(use, short, long string, do func(encryption.Change, context.Context) error) *cobra.Command {
		one := &cobra.Command{Use: use, Short: short, Long: short + ".\n\n" + long, Args: command.NoArgs}
		return interruptible(with(one, installation.encryption, func(c *cobra.Command, e *encryptedSecrets, _ []string) error {
			return do(e.change(c.OutOrStdout()), c.Context())
		}))
	}
	return command.Group(c,
		secretsEncryptStatusCommand(),
		step("rotate-keys", "Replace the key: prepare, rotate and reencrypt in one", "Steps that were done before are not done again.", encryption.Change.RotateKeys),
		step("prepare", "Make a new key with which all servers can read", "Nothing is written with it yet.", encryption.Change.Prepare),
		step("rotate", "Have all servers write with the new key", "Secrets that nobody writes stay encrypted with the former one.", encryption.Change.Rotate),
		step("reencrypt", "Encrypt all Secrets with the present key", "Former keys can still be read with, but nothing is encrypted with them afterwards.", encryption.Change.Reencrypt),
		step("enable", "Encrypt all Secrets in a cluster that does not", "A version without this feature cannot read them afterwards.", encryption.Change.Enable),
		step("seal", "Seal the keys with the passphrase, and replace them", "A server's disk does not open the Secrets afterwards. All servers need the setting secrets-encryption-passphrase-file before.", encryption.Change.Seal),
		step("unseal", "Seal the keys with the cluster's CA alone", "Servers need no passphrase afterwards. It is the way to another passphrase, too.", encryption.Change.Unseal),
		step("disable", "Write all Secrets as they are", "Who can read the datastore or its disk can read them afterwards.", encryption.Change.Disable),
	)
}

// encryptedSecrets is this server's access to the encryption keys and the Secrets in the datastore.
type encryptedSecrets struct {
	encryption.Store
	node    string
	dirs    paths.Dirs
	members *members.Members // nil for an external datastore
}

// Close ends the connection to the datastore.
func (e *encryptedSecrets) Close() error { return e.Client.Close() }

// encryption returns access to the encryption keys.
func (i installation) encryption() (*encryptedSecrets, error) {
	if encryption.OfUser(i.config) {
		return nil, errors.New("--encryption-provider-config, or a flag of kube-apiserver, says how or where this cluster keeps Secrets: change the file that it names, which servers read again by themselves")
	}
	return i.records()
}

// records returns access to what servers keep sealed in the datastore.
func (i installation) records() (*encryptedSecrets, error) {
	external := i.config.Datastore.External()
	switch {
	case os.Geteuid() != 0:
		return nil, errors.New("only root may see the cluster's keys: use sudo")
	case i.config.Role == config.Agent:
		return nil, errors.New("this machine is an agent, and has none of the cluster's keys: run this on a server")
	}
	e := &encryptedSecrets{node: i.config.Node.Name, dirs: i.dirs, Store: encryption.Store{
		Prefix: encryption.Prefix(i.config.Datastore), Passphrase: encryption.NewPassphrase(i.config),
	}}
	var err error
	if e.Seals, err = encryption.NewSeals(i.dirs, pki.SealSecrets); err != nil {
		return nil, err
	}
	if external {
		e.Client, err = member.External{Store: i.config.Datastore}.Dial()
		return e, err
	}
	if e.members, err = i.members(); err != nil {
		return nil, err
	}
	e.Client, err = e.members.Dial()
	return e, err
}

// serversPatience is how long a step waits for the other servers.
const serversPatience = 2 * time.Minute

func (e *encryptedSecrets) change(out io.Writer) encryption.Change {
	return encryption.Change{
		Store:    e.Store,
		Who:      fmt.Sprintf("process %d on %s, since %s", os.Getpid(), e.node, time.Now().Format(time.TimeOnly)),
		Running:  e.running,
		Tell:     func(line string) { fmt.Fprintln(out, line) },
		Patience: serversPatience,
	}
}

// running returns the servers whose etcd answers, and how many API servers there are.
func (e *encryptedSecrets) running(ctx context.Context) (names []string, atLeast int, err error) {
	ctx, cancel := context.WithTimeout(ctx, etcdTimeout)
	defer cancel()
	if e.members == nil {
		// kube-apiserver's endpoint reconciler keeps a key for each API server that runs.
		got, err := e.Client.Get(ctx, e.Prefix+"/masterleases/", clientv3.WithPrefix())
		if err != nil {
			return nil, 0, fmt.Errorf("asking which servers run: %w", err)
		}
		return nil, max(1, len(got.Kvs)), nil
	}
	status, err := e.members.Status(ctx)
	if err != nil {
		return nil, 0, err
	}
	for _, one := range status.Members {
		if one.Answers {
			names = append(names, one.Name)
		}
	}
	return names, 1, nil
}
