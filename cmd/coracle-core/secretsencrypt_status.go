package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/coracle-dev/coracle/pkg/etcd/encryption"
	"github.com/coracle-dev/coracle/pkg/front/command"
)

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
	// Passphrase says whether the keys are sealed with one.
	Passphrase bool `json:"passphrase"`
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
	s = secretsStatus{Enabled: keys.Write != "", Stage: keys.Stage, Keys: []secretsKey{}, Servers: map[string]string{}, Match: true, Passphrase: keys.WithPassphrase()}
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
	fmt.Fprintf(w, "Encryption Status: %s\nCurrent Rotation Stage: %s\nServer Encryption Hashes: %s\n", word, s.Stage, hashes)
	if s.Passphrase {
		fmt.Fprintln(w, "Keys Sealed With: cluster CA, passphrase")
	}
	fmt.Fprintln(w)
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
