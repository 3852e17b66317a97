package encryption

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/crypto/nacl/secretbox"

	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// Seal is what keeps the keys from everybody who can read etcd's data but is no server.
type Seal struct {
	Name string   // of the authority from whose key it is derived: the hash of its public key
	Key  [32]byte // the key itself
}

// NewSeal returns the seal of this server's cluster.
func NewSeal(d paths.Dirs) (s Seal, err error) {
	s.Name, s.Key, err = pki.SealKey(d)
	return s, err
}

// Prefix returns what all keys of a cluster in its datastore begin with.
func Prefix(d config.Datastore) string {
	if d.External() {
		return d.Prefix
	}
	return "/registry"
}

// OfUser reports whether the user's own configuration says how Secrets are encrypted, or where they are, and not this package.
func OfUser(cfg config.Config) bool {
	return cfg.API.EncryptionConfig != "" || slices.ContainsFunc(cfg.Args["kube-apiserver"], func(arg string) bool {
		name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		return strings.HasPrefix(name, "encryption-provider-config") || name == "etcd-prefix" || strings.HasPrefix(name, "etcd-servers")
	})
}

// Store is the data of a cluster in etcd.
type Store struct {
	Client *clientv3.Client
	Prefix string // what all keys of the cluster begin with: /registry
	Seal   Seal
}

func (s Store) record() string { return s.Prefix + "/coracle.io/encryption" }

// sealed is the record in etcd: the keys, sealed for each authority that servers may have.
type sealed struct {
	Sealed map[string][]byte `json:"sealed"`
}

// nonceBytes is the length of the random number before each sealed record.
const nonceBytes = 24

func (s Seal) close(k Keys) ([]byte, error) {
	text, err := json.Marshal(k)
	if err != nil {
		return nil, err
	}
	var nonce [nonceBytes]byte
	_, _ = rand.Read(nonce[:]) // it never fails, see crypto/rand
	return secretbox.Seal(nonce[:], text, &nonce, &s.Key), nil
}

// KeysError is an error that does not pass by itself: the keys cannot be had.
type KeysError struct{ text string }

// NewKeysError returns one.
func NewKeysError(text string) error { return &KeysError{text} }

func (e *KeysError) Error() string { return e.text }

var errSeal = &KeysError{"the cluster's encryption keys are sealed with another authority than this server's ca.key: " +
	"put the cluster's server/pki/ca.key back, from a backup or from another server"}

func (s Seal) open(data []byte) (k Keys, err error) {
	if len(data) < nonceBytes {
		return k, errSeal
	}
	text, ok := secretbox.Open(nil, data[nonceBytes:], (*[nonceBytes]byte)(data), &s.Key)
	if !ok {
		return k, errSeal
	}
	return k, json.Unmarshal(text, &k)
}

// Loaded are the keys of a cluster as they were at a revision of etcd.
type Loaded struct {
	Keys
	Exists   bool  // there are or were keys; false in clusters of before coracle encrypted anything
	At       int64 // etcd's revision when they were read
	modified int64 // the record's own, 0 if there is none
}

// Load reads the keys.
func (s Store) Load(ctx context.Context) (Loaded, error) {
	got, err := s.Client.Get(ctx, s.record())
	if err != nil {
		return Loaded{}, fmt.Errorf("reading the encryption keys: %w", err)
	}
	l := Loaded{At: got.Header.Revision, Exists: len(got.Kvs) > 0, Keys: Keys{Stage: Start}}
	if !l.Exists {
		return l, nil
	}
	l.modified = got.Kvs[0].ModRevision
	var r sealed
	if err := json.Unmarshal(got.Kvs[0].Value, &r); err != nil {
		return l, &KeysError{fmt.Sprintf("the encryption keys in the datastore, %s, are damaged: %v: restore a backup of the datastore", s.record(), err)}
	}
	l.Keys, err = s.Seal.open(r.Sealed[s.Seal.Name])
	return l, err
}

// errOther is the error if somebody else has changed the keys meanwhile.
var errOther = errors.New("the encryption keys were changed by another command at the same time: look at coracle secrets-encrypt status, and repeat this one")

// save writes the keys if they are still as they were loaded.
func (s Store) save(ctx context.Context, before Loaded, k Keys) error {
	box, err := s.Seal.close(k)
	if err != nil {
		return err
	}
	text, err := json.Marshal(sealed{Sealed: map[string][]byte{s.Seal.Name: box}})
	if err != nil {
		return err
	}
	done, _, err := s.putIf(ctx, s.record(), string(text), before.modified)
	if err != nil {
		return fmt.Errorf("writing the encryption keys: %w", err)
	}
	if !done {
		return errOther
	}
	return nil
}

// putIf writes a key if its revision is still the given one; 0 is that of a key that does not exist. If not, present is what is there, nil for nothing.
func (s Store) putIf(ctx context.Context, key, value string, revision int64, opts ...clientv3.OpOption) (done bool, present *mvccpb.KeyValue, err error) {
	// In this form, as kube-apiserver writes objects: shims such as kine support no other transactions.
	got, err := s.Client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).
		Then(clientv3.OpPut(key, value, opts...)).Else(clientv3.OpGet(key)).Commit()
	if err != nil || got.Succeeded {
		return err == nil, nil, err
	}
	if kvs := got.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
		present = kvs[0]
	}
	return false, present, nil
}

// Begin loads the keys. If the cluster has no data at all it makes a first key before.
func (s Store) Begin(ctx context.Context) (Loaded, error) {
	l, err := s.Load(ctx)
	if err != nil || l.Exists {
		return l, err
	}
	any, err := s.Client.Get(ctx, s.Prefix+"/", clientv3.WithPrefix(), clientv3.WithLimit(2))
	if err != nil {
		return l, fmt.Errorf("looking whether this is a new cluster: %w", err)
	}
	if slices.ContainsFunc(any.Kvs, func(kv *mvccpb.KeyValue) bool { return string(kv.Key) != s.Prefix+"/coracle.io/cluster" }) { // which an external etcd has before all else
		if err := s.checkLost(ctx); err != nil {
			return l, err
		}
		return s.Load(ctx) // another first server may have made a key meanwhile
	}
	k, _ := Keys{}.with(time.Now())
	k.Write, k.Stage = k.newest(), Start
	if err := s.save(ctx, l, k); err != nil && !errors.Is(err, errOther) {
		return l, err
	}
	return s.Load(ctx)
}

// checkLost returns an error if Secrets are encrypted with keys that were in etcd and are not any more.
func (s Store) checkLost(ctx context.Context) error {
	used, err := s.Count(ctx)
	if err != nil {
		return err
	}
	again, err := s.Load(ctx)
	if err != nil || again.Exists {
		return err
	}
	for name, n := range used {
		if strings.HasPrefix(name, "key") {
			return &KeysError{fmt.Sprintf("%d Secrets are encrypted with %s, and the encryption keys in the datastore, %s, are gone: restore a backup of the datastore", n, name, s.record())}
		}
	}
	return nil
}

// Keep puts the keys back that somebody has removed from etcd, as they were loaded.
func (s Store) Keep(ctx context.Context, l Loaded) error {
	l.modified = 0
	return s.save(ctx, l, l.Keys)
}

// Changes returns a channel that gets a value when the keys may have changed since l was loaded, and is closed when the watch ends.
func (s Store) Changes(ctx context.Context, l Loaded) clientv3.WatchChan {
	return s.Client.Watch(clientv3.WithRequireLeader(ctx), s.record(), clientv3.WithRev(l.At+1))
}
