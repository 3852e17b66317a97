package dataplane

import (
	"context"
	"encoding/json"
	"io/fs"
	"path"
	"strings"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/certmagic"
	"github.com/mholt/acmez/v3/acme"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// challengeAnswers are challenges by host.
type challengeAnswers map[string]gateway.Challenge

func answersOf(all []gateway.Challenge) *challengeAnswers {
	answers := challengeAnswers{}
	for _, c := range all {
		answers[strings.ToLower(c.Host)] = c
	}
	return &answers
}

// challenges is what Caddy has for its storage. It takes nothing, and holds only challenges: before there are routes, and during the TLS handshake
// of an ACME server, CertMagic looks in the storage whether another machine has begun a challenge for the host, and answers it. Every other request
// goes on to the routes, so that pods can have ACME clients too.
type challenges struct {
	current *atomic.Pointer[challengeAnswers]
}

// challengesDir is the directory in the storage for challenges, below one for each authority.
const challengesDir = "challenge_tokens"

// CaddyModule implements caddy.Module.
func (c challenges) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.storage." + challengesModule, New: func() caddy.Module { return &challenges{c.current} }}
}

// CertMagicStorage implements caddy.StorageConverter.
func (c challenges) CertMagicStorage() (certmagic.Storage, error) { return c, nil }

// Load implements certmagic.Storage.
func (c challenges) Load(_ context.Context, key string) ([]byte, error) {
	host, ok := strings.CutSuffix(path.Base(key), ".json")
	answers := c.current.Load()
	if !ok || answers == nil || path.Base(path.Dir(key)) != challengesDir {
		return nil, fs.ErrNotExist
	}
	challenge, ok := (*answers)[host]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return json.Marshal(acme.Challenge{
		Token: challenge.Token, KeyAuthorization: challenge.Answer, Identifier: acme.Identifier{Type: "dns", Value: host},
	})
}

// Store implements certmagic.Storage.
func (challenges) Store(context.Context, string, []byte) error { return fs.ErrPermission }

// Delete implements certmagic.Storage.
func (challenges) Delete(context.Context, string) error { return fs.ErrPermission }

// Exists implements certmagic.Storage.
func (challenges) Exists(context.Context, string) bool { return false }

// List implements certmagic.Storage.
func (challenges) List(context.Context, string, bool) ([]string, error) {
	return nil, fs.ErrNotExist
}

// Stat implements certmagic.Storage.
func (challenges) Stat(context.Context, string) (certmagic.KeyInfo, error) {
	return certmagic.KeyInfo{}, fs.ErrNotExist
}

// Lock implements certmagic.Locker.
func (challenges) Lock(context.Context, string) error { return nil }

// Unlock implements certmagic.Locker.
func (challenges) Unlock(context.Context, string) error { return nil }
