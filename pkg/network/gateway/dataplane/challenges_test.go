package dataplane

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/mholt/acmez/v3"
	"github.com/mholt/acmez/v3/acme"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
	"github.com/coracle-dev/coracle/test/acmeserver"
	"github.com/coracle-dev/coracle/test/registries"
)

// testChallenges: an ACME server gets its answer before there are routes, for exactly its host and path, and nobody gets anything else.
func testChallenges(t *testing.T, s *served, config gateway.Config, endpoints gateway.Endpoints, plain uint16) {
	const path = gateway.ChallengePath + "token-1"
	s.get(t, plain, "a.test", path, 200, "one "+path)
	config.Challenges = []gateway.Challenge{{Host: "a.test", Token: "token-1", Answer: "token-1.of-the-account"}, {Host: "new.test", Token: "token-2", Answer: "{env.PATH}"}}
	before := string(s.caddy)
	s.apply(t, config, endpoints)
	if string(s.caddy) != before {
		t.Error("a challenge makes Caddy load its configuration again")
	}
	s.get(t, plain, "A.test:80", path, 200, "token-1.of-the-account")
	s.get(t, plain, "new.test", gateway.ChallengePath+"token-2", 200, "{env.PATH}")
	for _, other := range []string{path + "/", path + "x", path + "%20", gateway.ChallengePath, "/.well-known/ACME-challenge/token-1"} {
		s.get(t, plain, "new.test", other, 404, "nothing serves")
		s.get(t, plain, "a.test", other, 200, "one "+other)
	}
	s.get(t, plain, "other.test", path, 404, "nothing serves")
	config.Challenges = nil
	s.apply(t, config, endpoints)
	s.get(t, plain, "a.test", path, 200, "one "+path)
}

// presenting writes challenges into the configuration.
type presenting func(...gateway.Challenge)

func (p presenting) Present(_ context.Context, c acme.Challenge) error {
	p(gateway.Challenge{Host: c.Identifier.Value, Token: c.Token, Answer: c.KeyAuthorization})
	return nil
}

func (p presenting) CleanUp(context.Context, acme.Challenge) error {
	p()
	return nil
}

// testACME: a real ACME server takes what Caddy answers for what it wants, by HTTP-01 and by TLS-ALPN-01.
func testACME(t *testing.T, s *served, config gateway.Config, endpoints gateway.Endpoints, plain, secure uint16) {
	authority := registries.NewAuthority(t, "of the ACME server")
	server := acmeserver.Start(t, nil, netip.AddrPort{}, acmeserver.Options{
		HTTP: int(plain), TLS: int(secure), Life: time.Hour, Authority: authority, Hosts: map[string][]string{"a.test": {"127.0.0.1"}, "new.test": {"127.0.0.1"}},
	})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority.PEM)
	key := testKey(t)
	client := acmez.Client{Client: &acme.Client{Directory: server.Directory, HTTPClient: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}}}
	account, err := client.NewAccount(t.Context(), acme.Account{TermsOfServiceAgreed: true, PrivateKey: key})
	if err != nil {
		t.Fatal(err)
	}
	solver := presenting(func(all ...gateway.Challenge) {
		config.Challenges = all
		s.apply(t, config, endpoints)
	})
	for _, kind := range []string{acme.ChallengeTypeHTTP01, acme.ChallengeTypeTLSALPN01} {
		client.ChallengeSolvers = map[string]acmez.Solver{kind: solver}
		for _, host := range []string{"a.test", "new.test"} {
			if _, err := client.ObtainCertificateForSANs(t.Context(), account, testKey(t), []string{host}); err != nil {
				t.Errorf("%s for %s: %v", kind, host, err)
			}
		}
	}
	solver(gateway.Challenge{Host: "new.test", Token: "token", Answer: "token.x"})
	for _, name := range []string{"other.test", "new.test.json", "x/new.test"} {
		c, err := tls.Dial("tcp", netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), secure).String(), &tls.Config{ServerName: name, NextProtos: []string{acmez.ACMETLS1Protocol}, InsecureSkipVerify: true})
		if err == nil {
			c.Close()
			t.Errorf("a client that asks for a challenge of %q gets a certificate", name)
		}
	}
}

func testKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}
