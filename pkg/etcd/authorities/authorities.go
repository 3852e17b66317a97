// Package authorities changes the cluster's authorities, and the key for tokens of service accounts, while everything runs. The change is a record in etcd,
// sealed as the encryption keys are. Package authorityfiles hands it to each server.
package authorities

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/coracle-dev/coracle/pkg/cluster/formerusers"
	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/etcd/encryption"
)

// Store returns the record of a cluster.
func Store(client *clientv3.Client, prefix string, seals []encryption.Seal) encryption.Store {
	return encryption.Store{Client: client, Prefix: prefix, Seals: seals, Name: "authorities", What: "the cluster's authorities"}
}

// Change changes the authorities of a running cluster. What is interrupted at any point goes on with the same call.
type Change struct {
	encryption.Change                  // of the record
	Secrets           encryption.Store // the encryption keys, which are sealed with the authorities
	Dirs              paths.Dirs       // of this server
	All               func(context.Context) (stopped []string, err error)
}

var errNone = errors.New("no change of authorities is under way: begin one with coracle certificate rotate-ca")

// Rotate has all servers sign with new authorities, and accept the former ones too. given are the new files by their names; if there are none, all are
// made.
func (c Change) Rotate(ctx context.Context, given map[string][]byte) error {
	return c.Locked(ctx, func(ctx context.Context) error {
		r, found, err := c.load(ctx)
		if err != nil {
			return err
		}
		if r.Stage == "" || r.Stage == pki.Finished {
			if err := c.await(ctx, r); err != nil { // no server is behind
				return err
			}
			if r, err = pki.BeginRotation(c.Dirs, given, time.Now()); err != nil {
				return err
			}
			if found, err = c.save(ctx, found, r, false); err != nil {
				return err
			}
		} else if len(given) > 0 && !maps.EqualFunc(given, r.After, bytes.Equal) {
			return errors.New("the authorities are being changed to others than these: end that with coracle certificate rotate-ca, and then with --finish")
		}
		if err := c.await(ctx, r); err != nil {
			return err
		}
		if r.Stage == pki.Trusting {
			c.Tell("all servers accept both the former authorities and the new ones")
			if err := c.reseal(ctx, false); err != nil {
				return err
			}
			r.Stage = pki.Signing
			if _, err = c.save(ctx, found, r, false); err != nil {
				return err
			}
			if err := c.await(ctx, r); err != nil {
				return err
			}
		}
		c.Tell("all servers sign with the new ones: " + strings.Join(slices.Sorted(maps.Keys(r.After)), ", "))
		return nil
	})
}

// Finish has all servers drop the former authorities. If somebody uses them still, that is an error with their names, unless force is set.
func (c Change) Finish(ctx context.Context, force bool) error {
	return c.Locked(ctx, func(ctx context.Context) error {
		r, found, err := c.load(ctx)
		switch {
		case err != nil:
			return err
		case r.Stage == "":
			return errNone
		case r.Stage == pki.Trusting:
			return errors.New("servers do not sign with the new authorities yet: run coracle certificate rotate-ca before")
		}
		if err := c.await(ctx, r); err != nil {
			return err
		}
		if r.Stage == pki.Signing {
			if err := c.unused(ctx, r.ID()); err != nil {
				if !force {
					return err
				}
				c.Tell("because of --force this does not matter: " + err.Error())
			}
			if err := c.reseal(ctx, true); err != nil {
				return err
			}
			r = r.Finish()
			if _, err := c.save(ctx, found, r, true); err != nil {
				return err
			}
			if err := c.await(ctx, r); err != nil {
				return err
			}
		}
		c.Tell("all servers have dropped the former authorities")
		return nil
	})
}

// unused returns an error that names who uses the former authorities, and servers that do not run or do not report the stage with an ID.
func (c Change) unused(ctx context.Context, id string) error {
	stopped, err := c.All(ctx)
	if err != nil {
		return err
	}
	if len(stopped) > 0 {
		return fmt.Errorf("these servers do not run, and would not come back: %s; start them, or remove them with coracle node remove", strings.Join(stopped, ", "))
	}
	reports, lacking, err := c.Reports(ctx, id)
	if err != nil {
		return err
	}
	if len(lacking) > 0 {
		return fmt.Errorf("not all servers have told who uses the former authorities: %s; run the same command again", strings.Join(lacking, ", "))
	}
	var users []string
	var since time.Time
	for _, one := range reports {
		if users = append(users, one.Users...); one.Since.After(since) {
			since = one.Since
		}
	}
	slices.Sort(users)
	if users = slices.Compact(users); len(users) > 0 {
		return fmt.Errorf("the former authorities, or the former sa.key, were used lately by:\n  %s\nThey would be refused. Nodes and pods change by themselves "+
			"within an hour; give others new kubeconfigs or tokens. Then run the same command again, or add --force", strings.Join(users, "\n  "))
	}
	if looked := time.Since(since); looked < formerusers.Lately {
		return fmt.Errorf("nobody has used the former authorities or the former sa.key, but servers have looked for that for %s only: run the same command again "+
			"in %s, or add --force", looked.Round(time.Second), (formerusers.Lately - looked).Round(time.Second))
	}
	return nil
}

func (c Change) load(ctx context.Context) (r pki.Rotation, f encryption.Found, err error) {
	f, err = c.Open(ctx, &r)
	return r, f, err
}

// save writes the record and returns it as it is then. It is sealed with all keys that this server has, or with those of the new authority alone.
func (c Change) save(ctx context.Context, before encryption.Found, r pki.Rotation, alone bool) (f encryption.Found, err error) {
	s := c.Store
	if s.Seals, err = c.seals(pki.SealAuthorities, alone); err != nil {
		return before, err
	}
	if err := s.Close(ctx, before, r); err != nil {
		return before, err
	}
	return s.Open(ctx, &r)
}

// reseal seals the encryption keys for the servers of the next stage.
func (c Change) reseal(ctx context.Context, alone bool) (err error) {
	s := c.Secrets
	if s.Seals, err = c.seals(pki.SealSecrets, false); err != nil {
		return err
	}
	with, err := c.seals(pki.SealSecrets, alone)
	if err != nil {
		return err
	}
	return s.Reseal(ctx, with)
}

// seals returns the seals of all authorities that this server has, or of the one that signs alone.
func (c Change) seals(purpose string, alone bool) ([]encryption.Seal, error) {
	seals, err := encryption.NewSeals(c.Dirs, purpose)
	if err == nil && alone {
		seals = seals[:1]
	}
	return seals, err
}

func (c Change) await(ctx context.Context, r pki.Rotation) error {
	return c.Await(ctx, r.ID(), "the cluster's authorities")
}
