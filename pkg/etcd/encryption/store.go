package encryption

import (
	"cmp"
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
type Seal pki.Seal

// NewSeals returns the seals of this server's cluster for a purpose of pki.SealKeys. The first is of the present authority; while authorities are being
// changed there is another one.
func NewSeals(d paths.Dirs, purpose string) (seals []Seal, err error) {
	all, err := pki.SealKeys(d, purpose)
	for _, one := range all {
		seals = append(seals, Seal(one))
	}
	return seals, err
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
	Seals  []Seal // a record is sealed with each of these
	// Passphrase seals and opens the encryption keys too, if they are sealed with one.
	Passphrase *Passphrase
	// Name is that of another record than the encryption keys, and What says what it is.
	Name, What string
}

func (s Store) record() string { return s.Prefix + "/coracle.io/" + cmp.Or(s.Name, "encryption") }

func (s Store) what() string { return cmp.Or(s.What, "the encryption keys") }

// sealed is the record in etcd: the keys, sealed for each authority that servers may have.
type sealed struct {
	Sealed map[string][]byte `json:"sealed"`
	// Salt is that of the passphrase with which they are sealed before; without one they are not.
	Salt []byte `json:"passphraseSalt,omitempty"`
}

// nonceBytes is the length of the random number before each sealed record.
const nonceBytes = 24

func (s Seal) close(text []byte) []byte {
	var nonce [nonceBytes]byte
	_, _ = rand.Read(nonce[:]) // it never fails, see crypto/rand
	return secretbox.Seal(nonce[:], text, &nonce, &s.Key)
}

// KeysError is an error that does not pass by itself: the keys cannot be had.
type KeysError struct{ text string }

// NewKeysError returns one.
func NewKeysError(text string) error { return &KeysError{text} }

func (e *KeysError) Error() string { return e.text }

var errSeal = &KeysError{"the cluster's encryption keys are sealed with another authority than this server's ca.key: " +
	"put the cluster's server/pki/ca.key back, from a backup or from another server"}

func (s Seal) open(data []byte) ([]byte, error) {
	if len(data) < nonceBytes {
		return nil, errSeal
	}
	text, ok := secretbox.Open(nil, data[nonceBytes:], (*[nonceBytes]byte)(data), &s.Key)
	if !ok {
		return nil, errSeal
	}
	return text, nil
}

// Found is a record as it was at a revision of etcd.
type Found struct {
	Exists   bool
	At       int64 // etcd's revision when it was read
	modified int64 // the record's own, 0 if there is none
	salt     []byte
}

// WithPassphrase reports whether the record is sealed with a passphrase too.
func (f Found) WithPassphrase() bool { return f.salt != nil }

// Loaded are the keys of a cluster as they were at a revision of etcd. They do not exist in clusters that began with a version that encrypted nothing.
type Loaded struct {
	Keys
	Found
}

// Load reads the keys.
func (s Store) Load(ctx context.Context) (Loaded, error) {
	l := Loaded{Keys: Keys{Stage: Start}}
	found, err := s.Open(ctx, &l.Keys)
	l.Found = found
	return l, err
}

// Open reads a record.
func (s Store) Open(ctx context.Context, into any) (f Found, err error) {
	got, err := s.Client.Get(ctx, s.record())
	if err != nil {
		return f, fmt.Errorf("reading %s: %w", s.what(), err)
	}
	f.At, f.Exists = got.Header.Revision, len(got.Kvs) > 0
	if !f.Exists {
		return f, nil
	}
	f.modified = got.Kvs[0].ModRevision
	var r sealed
	if err := json.Unmarshal(got.Kvs[0].Value, &r); err != nil {
		return f, &KeysError{fmt.Sprintf("%s in the datastore, %s, are damaged: %v: restore a backup of the datastore", s.what(), s.record(), err)}
	}
	f.salt = r.Salt
	for _, seal := range s.Seals {
		text, err := seal.open(r.Sealed[seal.Name])
		if err != nil {
			continue
		}
		if text, err = s.Passphrase.open(r.Salt, text); err != nil {
			return f, err
		}
		return f, json.Unmarshal(text, into)
	}
	return f, errSeal
}

// errOther is the error if somebody else has changed the keys meanwhile.
var errOther = errors.New("they were changed by another command at the same time: look at their status, and repeat this one")

// save writes the keys if they are still as they were loaded.
func (s Store) save(ctx context.Context, before Loaded, k Keys) error {
	return s.Close(ctx, before.Found, k)
}

// Close writes a record if it is still as it was found, and with a passphrase if it was.
func (s Store) Close(ctx context.Context, before Found, value any) error {
	content, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if content, err = s.Passphrase.close(before.salt, content); err != nil {
		return err
	}
	r := sealed{Sealed: map[string][]byte{}, Salt: before.salt}
	for _, seal := range s.Seals {
		r.Sealed[seal.Name] = seal.close(content)
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	done, _, err := s.putIf(ctx, s.record(), string(text), before.modified)
	if err != nil {
		return fmt.Errorf("writing %s: %w", s.what(), err)
	}
	if !done {
		return fmt.Errorf("%s: %w", s.what(), errOther)
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
	if s.Passphrase.Given() {
		l.salt = newSalt()
	}
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

// Changes returns a channel that gets a value when the record may have changed since it was found, and is closed when the watch ends.
func (s Store) Changes(ctx context.Context, f Found) clientv3.WatchChan {
	return s.Client.Watch(clientv3.WithRequireLeader(ctx), s.record(), clientv3.WithRev(f.At+1))
}
