package apiserver

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sirupsen/logrus"
	"gopkg.in/go-jose/go-jose.v2/jwt"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/pkg/serviceaccount"

	"github.com/coracle-dev/coracle/pkg/core/filewatch"
)

// AccountKeys signs and verifies the tokens of service accounts with the keys in two files, which it reads again when they change. Upstream reads them at
// its start only.
type AccountKeys struct {
	Private string // the first key in it signs
	Public  string // all keys in it verify
	Issuer  string

	foreign   atomic.Bool // the user has other keys
	mu        sync.RWMutex
	private   []byte // what was read
	public    []byte
	getter    serviceaccount.PublicKeysGetter
	generator serviceaccount.TokenGenerator
	listeners []serviceaccount.Listener
}

// cacheSeconds is how long clients outside may keep the public keys, which the API server publishes.
const cacheSeconds = 60

// InUse reports whether the files are as they were read. Those that the user has given in their place are no matter of coracle's.
func (k *AccountKeys) InUse() bool {
	if k.foreign.Load() {
		return true
	}
	private, public, err := k.read()
	k.mu.RLock()
	defer k.mu.RUnlock()
	return err == nil && slices.Equal(private, k.private) && slices.Equal(public, k.public)
}

func (k *AccountKeys) read() (private, public []byte, err error) {
	if private, err = os.ReadFile(k.Private); err == nil {
		public, err = os.ReadFile(k.Public)
	}
	return private, public, err
}

// load reads the files. After an error the former keys stay in use.
func (k *AccountKeys) load() error {
	private, public, err := k.read()
	if err != nil {
		return err
	}
	signs, err := keyutil.ParsePrivateKeyPEM(private)
	if err != nil {
		return fmt.Errorf("reading %s: %w", k.Private, err)
	}
	verify, err := keyutil.ParsePublicKeysPEM(public)
	if err != nil {
		return fmt.Errorf("reading %s: %w", k.Public, err)
	}
	generator, err := serviceaccount.JWTTokenGenerator(k.Issuer, signs)
	if err != nil {
		return fmt.Errorf("reading %s: %w", k.Private, err)
	}
	getter, err := serviceaccount.StaticPublicKeysGetter(verify)
	if err != nil {
		return fmt.Errorf("reading %s: %w", k.Public, err)
	}
	k.mu.Lock()
	k.private, k.public, k.generator, k.getter = private, public, generator, getter
	listeners := slices.Clone(k.listeners)
	k.mu.Unlock()
	for _, l := range listeners {
		l.Enqueue()
	}
	return nil
}

// install makes the server use the keys, unless the user has set other ones, and follows changes until ctx is done.
func (k *AccountKeys) install(ctx context.Context, opts *options.CompletedOptions) error {
	accounts := opts.Authentication.ServiceAccounts
	if k == nil || opts.ServiceAccountSigningKeyFile != k.Private || !slices.Equal(accounts.KeyFiles, []string{k.Public}) {
		if k != nil {
			k.foreign.Store(true)
		}
		return nil
	}
	k.Issuer = accounts.Issuers[0] // the user may have set it
	if err := k.load(); err != nil {
		return err
	}
	accounts.KeyFiles, accounts.ExternalPublicKeysGetter = nil, k
	opts.ServiceAccountIssuer = k
	changes := filewatch.Changes(ctx, func() string { return filewatch.State(k.Private) + filewatch.State(k.Public) })
	go func() {
		for {
			if !k.InUse() {
				if err := k.load(); err != nil {
					logrus.WithField("component", "kube-apiserver").WithError(err).Warn("the keys for tokens of service accounts cannot be read again; the former ones stay in use")
				}
			}
			select {
			case <-changes:
			case <-ctx.Done():
				return
			}
		}
	}()
	return nil
}

// AddListener implements serviceaccount.PublicKeysGetter.
func (k *AccountKeys) AddListener(l serviceaccount.Listener) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.listeners = append(k.listeners, l)
}

// GetCacheAgeMaxSeconds implements serviceaccount.PublicKeysGetter.
func (k *AccountKeys) GetCacheAgeMaxSeconds() int { return cacheSeconds }

// GetPublicKeys implements serviceaccount.PublicKeysGetter.
func (k *AccountKeys) GetPublicKeys(ctx context.Context, id string) []serviceaccount.PublicKey {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.getter.GetPublicKeys(ctx, id)
}

// GenerateToken implements serviceaccount.TokenGenerator.
func (k *AccountKeys) GenerateToken(ctx context.Context, claims *jwt.Claims, private any) (string, error) {
	k.mu.RLock()
	g := k.generator
	k.mu.RUnlock()
	return g.GenerateToken(ctx, claims, private)
}
