// Package encryptionconfig keeps the file from which this server's API server takes the keys to encrypt Secrets with, and reports which it uses.
package encryptionconfig

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/sirupsen/logrus"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/etcd/encryption"
)

// Config is the component. The cluster's first server makes the first key.
type Config struct {
	Dial   func() (*clientv3.Client, error)
	Prefix string // what all keys of the cluster in etcd begin with
	Seals  func() ([]encryption.Seal, error)
	// Passphrase is that with which a new cluster's keys are sealed, and that opens those that are.
	Passphrase *encryption.Passphrase
	Node       string
	// File is the file, in memory; "" if the user has a configuration of their own, which excludes coracle's.
	File string
}

var errTwo = encryption.NewKeysError("this cluster's Secrets are encrypted with keys of coracle's own, which kube-apiserver cannot read with --encryption-provider-config " +
	"or another place for Secrets: remove that setting, or run coracle secrets-encrypt disable without it first")

// Run is ready when the file is there.
func (c Config) Run(ctx context.Context, ready func()) error {
	seals, err := c.Seals()
	if err != nil {
		return err
	}
	client, err := c.Dial()
	if err != nil {
		return err
	}
	defer client.Close()
	store := encryption.Store{Client: client, Prefix: c.Prefix, Seals: seals, Passphrase: c.Passphrase}
	if c.File == "" {
		if _, err := await(ctx, func(ctx context.Context) (encryption.Loaded, error) { return checkUnused(ctx, store) }); err != nil {
			return err
		}
		ready()
		<-ctx.Done()
		return nil
	}
	keys, err := await(ctx, store.Begin)
	if err != nil {
		return err
	}
	if c.Passphrase.Given() && keys.Write != "" && !keys.WithPassphrase() {
		logger().Warn("there is a passphrase, and the cluster's encryption keys are not sealed with it: when all servers have it, run coracle secrets-encrypt seal")
	}
	f := &follower{Config: c, store: store}
	if err := f.write(keys); err != nil {
		return err
	}
	ready()
	for ctx.Err() == nil {
		pause := time.Second
		if err := f.follow(ctx, keys); err != nil && ctx.Err() == nil {
			logger().WithError(err).Debug("following changes of the encryption keys")
			pause = afterError
		}
		for told := false; lifecycle.Sleep(ctx, pause) == nil; pause = afterError {
			again, err := f.reload(ctx, keys)
			if err == nil {
				keys = again
				break
			}
			if !told && ctx.Err() == nil {
				told = true
				logger().WithError(err).Warn("the encryption keys cannot be taken over from the datastore; those that are known stay in use")
			}
		}
	}
	f.end()
	return nil
}

// afterError is the pause after an error, and after a report that etcd could not keep.
const afterError = 10 * time.Second

func logger() logrus.FieldLogger { return logrus.WithField("component", "encryption") }

// await asks for the keys until etcd answers: it may have lost its leader just now.
func await(ctx context.Context, ask func(context.Context) (encryption.Loaded, error)) (keys encryption.Loaded, err error) {
	var lasting *encryption.KeysError
	var passing *encryption.PassphraseError // etcd must run meanwhile: the others may need this member
	told := ""
	waited := lifecycle.Until(ctx, "the encryption keys", func(ctx context.Context) error {
		if keys, err = ask(ctx); errors.As(err, &lasting) {
			return nil
		}
		if errors.As(err, &passing) && err.Error() != told {
			told = err.Error()
			logger().Errorf("%s; the API of this server starts when that is mended", told)
		}
		return err
	})
	return keys, cmp.Or(waited, err)
}

// checkUnused returns an error if Secrets are encrypted with coracle's keys, which a configuration of the user's lacks.
func checkUnused(ctx context.Context, store encryption.Store) (encryption.Loaded, error) {
	keys, err := store.Load(ctx)
	if err != nil || !keys.Exists {
		return keys, err
	}
	used, err := store.Count(ctx)
	if err != nil {
		return keys, err
	}
	for _, one := range keys.List {
		if keys.Write != "" || used[one.Name] > 0 {
			return keys, errTwo
		}
	}
	return keys, nil
}
