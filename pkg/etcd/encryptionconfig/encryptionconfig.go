// Package encryptionconfig keeps the file from which this server's API server takes the keys to encrypt Secrets with, and reports which it uses.
package encryptionconfig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/etcd/encryption"
)

// Config is the component. The cluster's first server makes the first key.
type Config struct {
	Dial   func() (*clientv3.Client, error)
	Prefix string // what all keys of the cluster in etcd begin with
	Seal   func() (encryption.Seal, error)
	Node   string
	// File is the file, in memory; "" if the user has a configuration of their own, which excludes coracle's.
	File string
}

var errTwo = errors.New("this cluster's Secrets are encrypted with keys of coracle's own, which kube-apiserver could not read with --encryption-provider-config: " +
	"remove that setting, or run coracle secrets-encrypt disable without it first")

// Run is ready when the file is there.
func (c Config) Run(ctx context.Context, ready func()) error {
	seal, err := c.Seal()
	if err != nil {
		return err
	}
	client, err := c.Dial()
	if err != nil {
		return err
	}
	defer client.Close()
	store := encryption.Store{Client: client, Prefix: c.Prefix, Seal: seal}
	if c.File == "" {
		keys, err := store.Load(ctx)
		if err != nil || keys.Write != "" {
			return cmp.Or(err, errTwo)
		}
		ready()
		<-ctx.Done()
		return nil
	}
	keys, err := store.Begin(ctx)
	if err != nil {
		return err
	}
	f := &follower{Config: c, store: store}
	if err := f.write(keys); err != nil {
		return err
	}
	ready()
	log := logrus.WithField("component", "encryption")
	for ctx.Err() == nil {
		if err := f.follow(ctx, keys); err != nil && ctx.Err() == nil {
			log.WithError(err).Debug("following changes of the encryption keys")
		}
		if lifecycle.Sleep(ctx, time.Second) != nil {
			break
		}
		again, err := store.Load(ctx)
		if err != nil {
			if ctx.Err() == nil {
				log.WithError(err).Warn("The encryption keys cannot be read; those that are known stay in use")
			}
			continue
		}
		keys = again
		if err := f.write(keys); err != nil {
			log.WithError(err).Error("Keeping the file with encryption keys; the former ones stay in use")
		}
	}
	return nil
}

type follower struct {
	Config
	store encryption.Store
	hash  string // of the file
	// withdraw removes the last report; nil if there is none.
	withdraw func()
}

func (f *follower) write(k encryption.Loaded) error {
	text, hash, err := k.Config()
	if err != nil {
		return err
	}
	if _, err := atomicfile.WriteIfChanged(f.File, text, 0o600); err != nil {
		return fmt.Errorf("writing the encryption keys for the API server: %w", err)
	}
	f.hash = hash
	return nil
}

// look is how often the API server is asked which keys it uses, until it uses the present ones.
const look = time.Second

// follow reports the keys as soon as the API server uses them. It returns when the keys may have changed, or etcd is lost.
func (f *follower) follow(ctx context.Context, k encryption.Loaded) error {
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	changes := f.store.Changes(watching, k)
	if f.withdraw == nil { // a server that is about to use keys is waited for
		if _, err := f.present(ctx, ""); err != nil {
			return err
		}
	}
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		select {
		case <-changes:
			return nil
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		used, err := usedKeys()
		if err != nil {
			return err
		}
		if used == f.hash {
			break
		}
	}
	lost, err := f.present(ctx, f.hash)
	if err != nil {
		return err
	}
	select {
	case <-changes:
	case <-lost:
		f.withdraw()
		f.withdraw = nil
	case <-ctx.Done():
	}
	return nil
}

// present reports the keys that are used, in place of the last report.
func (f *follower) present(ctx context.Context, hash string) (lost <-chan struct{}, err error) {
	ctx, cancel := context.WithCancel(ctx)
	if lost, err = f.store.Present(ctx, f.Node, encryption.Report{Hash: hash}); err != nil {
		cancel()
		return nil, err
	}
	if f.withdraw != nil {
		f.withdraw()
	}
	f.withdraw = cancel
	return lost, nil
}

// usedKeys returns the hash of the configuration that the API server uses, which is in this process; "" if it has not started yet.
func usedKeys() (string, error) {
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		return "", err
	}
	for _, family := range families {
		if family.GetName() != "apiserver_encryption_config_controller_last_config_info" {
			continue
		}
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				if label.GetName() == "hash" {
					return label.GetValue(), nil
				}
			}
		}
	}
	return "", nil
}
