package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/coracle-dev/coracle/pkg/core/config"
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
		step("reencrypt", "Encrypt all Secrets with the present key", "The former key can be read with until the next one is made.", encryption.Change.Reencrypt),
		step("enable", "Encrypt all Secrets in a cluster that does not", "A coracle of before this feature cannot read them afterwards.", encryption.Change.Enable),
		step("disable", "Write all Secrets as they are", "Who can read the datastore or its disk can read them afterwards.", encryption.Change.Disable),
	)
}

// encryptedSecrets is this server's access to the encryption keys and the Secrets in the datastore.
type encryptedSecrets struct {
	encryption.Store
	node    string
	members *members.Members // nil for an external datastore
}

// Close ends the connection to the datastore.
func (e *encryptedSecrets) Close() error { return e.Client.Close() }

// encryption returns access to the encryption keys.
func (i installation) encryption() (*encryptedSecrets, error) {
	external := i.config.Datastore.External()
	switch {
	case os.Geteuid() != 0:
		return nil, errors.New("only root may see the cluster's keys: use sudo")
	case i.config.Role == config.Agent:
		return nil, errors.New("this machine is an agent, and has none of the cluster's keys: run this on a server")
	case encryption.OfUser(i.config):
		return nil, errors.New("--encryption-provider-config says how this cluster encrypts Secrets: change that file, which servers read again by themselves")
	}
	e := &encryptedSecrets{node: i.config.Node.Name, Store: encryption.Store{Prefix: encryption.Prefix(i.config.Datastore)}}
	var err error
	if e.Seal, err = encryption.NewSeal(i.dirs); err != nil {
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
		Expected: e.running,
		Tell:     func(line string) { fmt.Fprintln(out, line) },
		Patience: serversPatience,
	}
}

// running returns the servers whose etcd answers; nil for an external datastore.
func (e *encryptedSecrets) running(ctx context.Context) (names []string, err error) {
	if e.members == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, etcdTimeout)
	defer cancel()
	status, err := e.members.Status(ctx)
	if err != nil {
		return nil, err
	}
	for _, one := range status.Members {
		if one.Answers {
			names = append(names, one.Name)
		}
	}
	return names, nil
}

// secretsStatus is what the command status prints.
type secretsStatus struct {
	Enabled bool             `json:"enable"`
	Stage   encryption.Stage `json:"stage"`
	Keys    []secretsKey     `json:"keys"`
	Plain   int              `json:"notEncrypted"`
	Other   int              `json:"otherKeys"`
	// Servers are the hashes of the configurations that running servers use, by node. They all use the present one if Match is true.
	Servers map[string]string `json:"servers"`
	Match   bool              `json:"hashmatch"`
}

type secretsKey struct {
	Name    string    `json:"name"`
	Type    string    `json:"type"`
	Active  bool      `json:"active"`
	Created time.Time `json:"created"`
	Secrets int       `json:"secrets"`
}

// keyType is what k3s calls the cipher.
const keyType = "XSalsa20-POLY1305"

func secretsEncryptStatusCommand() *cobra.Command {
	c := &cobra.Command{Use: "status", Short: "Show which keys there are, and how many Secrets are encrypted with each", Args: command.NoArgs}
	output := command.OutputFlag(c, "", "json", "yaml")
	return with(c, installation.encryption, func(c *cobra.Command, e *encryptedSecrets, _ []string) error {
		ctx, cancel := context.WithTimeout(c.Context(), time.Minute)
		defer cancel()
		s, err := e.status(ctx)
		if err != nil {
			return err
		}
		return command.Print(c.OutOrStdout(), *output, s, s.print)
	})
}

func (e *encryptedSecrets) status(ctx context.Context) (s secretsStatus, err error) {
	keys, err := e.Load(ctx)
	if err != nil {
		return s, err
	}
	counts, err := e.Count(ctx)
	if err != nil {
		return s, err
	}
	reports, err := e.Servers(ctx)
	if err != nil {
		return s, err
	}
	_, hash, err := keys.Config()
	if err != nil {
		return s, err
	}
	s = secretsStatus{Enabled: keys.Write != "", Stage: keys.Stage, Keys: []secretsKey{}, Servers: map[string]string{}, Match: true}
	for _, one := range keys.List {
		s.Keys = append(s.Keys, secretsKey{Name: one.Name, Type: keyType, Active: one.Name == keys.Write, Created: one.Created, Secrets: counts[one.Name]})
		delete(counts, one.Name)
	}
	s.Plain = counts[""]
	delete(counts, "")
	for _, n := range counts {
		s.Other += n
	}
	for name, r := range reports {
		s.Servers[name] = r.Hash
		s.Match = s.Match && r.Hash == hash
	}
	return s, nil
}

func (s secretsStatus) print(w io.Writer) error {
	word := map[bool]string{true: "Enabled", false: "Disabled"}[s.Enabled]
	hashes := "All hashes match"
	if !s.Match {
		var all []string
		for _, name := range slices.Sorted(maps.Keys(s.Servers)) {
			all = append(all, name+" "+s.Servers[name])
		}
		hashes = "hash does not match: " + strings.Join(all, ", ")
	}
	fmt.Fprintf(w, "Encryption Status: %s\nCurrent Rotation Stage: %s\nServer Encryption Hashes: %s\n\n", word, s.Stage, hashes)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "Active\tKey Type\tName\tCreated\tSecrets")
	for _, one := range s.Keys {
		active := map[bool]string{true: " *"}[one.Active]
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\n", active, one.Type, one.Name, one.Created.Format(time.RFC3339), one.Secrets)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if s.Plain > 0 {
		fmt.Fprintf(w, "\n%d Secrets are not encrypted.\n", s.Plain)
	}
	if s.Other > 0 {
		fmt.Fprintf(w, "\n%d Secrets are encrypted with keys that this cluster does not have, and cannot be read.\n", s.Other)
	}
	return nil
}
