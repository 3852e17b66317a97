package encryptionconfig

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/etcd/encryption"
)

// follower follows the keys of the cluster.
type follower struct {
	Config
	store encryption.Store
	hash  string // of the file
	// withdraw removes the last report, and gone is closed when that is done; nil if there is none.
	withdraw func()
	gone     <-chan struct{}
}

// reloadTime is how long reload waits for a datastore that does not answer.
const reloadTime = 30 * time.Second

// reload takes the keys over from etcd. If somebody has removed them there, it puts those back that are known.
func (f *follower) reload(ctx context.Context, known encryption.Loaded) (encryption.Loaded, error) {
	ctx, cancel := context.WithTimeout(ctx, reloadTime)
	defer cancel()
	again := known
	seals, err := f.Seals() // they change with the cluster's authorities
	if err != nil {
		return again, err
	}
	f.store.Seals = seals
	if again, err = f.store.Load(ctx); err != nil {
		return again, err
	}
	if known.Exists && !again.Exists {
		logger().Error("the encryption keys were removed from the datastore, and are put back: who did that?")
		if err := f.store.Keep(ctx, known); err != nil { // another server may be faster
			return again, err
		}
		if again, err = f.store.Load(ctx); err != nil {
			return again, err
		}
	}
	return again, f.write(again)
}

// end removes the report of a server that stops.
func (f *follower) end() {
	if f.withdraw != nil {
		f.withdraw()
		<-f.gone
	}
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

// The API server is asked which keys it uses, until it uses the present ones: every second, and every half minute if it does not for long.
const (
	look, seldom = time.Second, 30 * time.Second
	longLooks    = 60
)

// follow reports the keys as soon as the API server uses them. It returns when the keys may have changed, or etcd is lost.
func (f *follower) follow(ctx context.Context, k encryption.Loaded) error {
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	changes := f.store.Changes(watching, k.Found)
	if f.withdraw == nil { // a server that is about to use keys is waited for
		if _, err := f.present(ctx, ""); err != nil {
			return err
		}
	}
	tick := time.NewTicker(look)
	defer tick.Stop()
	for n := 1; ; n++ {
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
		if n == longLooks {
			logger().Warn("the API server does not use the encryption keys of the cluster yet; a change of keys waits for it")
			tick.Reset(seldom)
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
		return errLost
	case <-ctx.Done():
	}
	return nil
}

var errLost = errors.New("etcd has not kept the report of the keys that this server uses")

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
	f.withdraw, f.gone = cancel, lost
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
