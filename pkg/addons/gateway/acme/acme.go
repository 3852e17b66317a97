// Package acme gets certificates from an ACME server (RFC 8555), which validates hosts by HTTP-01. It is for one server of the cluster at a time:
// Account speaks to the ACME server, and Book decides what may be asked of it, and when.
package acme

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mholt/acmez/v3/acme"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// Order is an order of a certificate, which another server of the cluster can go on with.
type Order struct {
	Hosts []string `json:"hosts"`
	URL   string   `json:"url,omitempty"` // "" before the ACME server has it
	Key   string   `json:"key"`           // of the certificate, in PEM
}

// NewOrder returns an order with a new key.
func NewOrder(hosts []string) (*Order, error) {
	key, err := NewKey()
	if err != nil {
		return nil, err
	}
	text, err := KeyPEM(key)
	return &Order{Hosts: hosts, Key: string(text)}, err
}

// Challenge is one that an ACME server waits for the answer to.
type Challenge struct {
	gateway.Challenge
	TLS bool // it asks by TLS-ALPN-01 and not by HTTP-01
}

// Steps are what an order needs of its caller.
type Steps struct {
	// Alternative prefers TLS-ALPN-01 to HTTP-01.
	Alternative bool
	// Placed is called when the ACME server has the order.
	Placed func(context.Context) error
	// Present returns when ACME servers get the answers to these challenges.
	Present func(context.Context, []Challenge) error
}

// Obtain goes on with an order, and returns the certificate with its chain in PEM. After a Refusal the order is over; after another error the
// same order can be tried again.
func (a *Account) Obtain(ctx context.Context, o *Order, do Steps) (chain []byte, leaf *x509.Certificate, err error) {
	ctx, cancel := context.WithTimeout(ctx, orderTimeout)
	defer cancel()
	key, err := ParseKey([]byte(o.Key))
	if err != nil {
		return nil, nil, err
	}
	order, err := a.place(ctx, o, do)
	if err != nil {
		return nil, nil, refusal(err)
	}
	if order.Status == acme.StatusPending {
		if err := a.validate(ctx, order, do); err != nil {
			return nil, nil, refusal(err)
		}
	}
	if order.Status != acme.StatusValid {
		request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{DNSNames: o.Hosts}, key)
		if err != nil {
			return nil, nil, err
		}
		if order, err = a.client.FinalizeOrder(ctx, a.account, order, request); err != nil {
			return nil, nil, refusal(err)
		}
	}
	chains, err := a.client.GetCertificateChain(ctx, a.account, order.Certificate)
	if err != nil {
		return nil, nil, refusal(err)
	}
	if len(chains) == 0 {
		return nil, nil, errors.New("the ACME server sends no certificate")
	}
	text, _, leaf, err := gateway.KeyPair(chains[0].ChainPEM, []byte(o.Key))
	if err != nil {
		return nil, nil, fmt.Errorf("the ACME server sends a certificate that cannot be used: %w", err)
	}
	if i := slices.IndexFunc(o.Hosts, func(h string) bool { return leaf.VerifyHostname(h) != nil }); i >= 0 {
		return nil, nil, fmt.Errorf("the ACME server sends a certificate that is not for %s", o.Hosts[i])
	}
	return []byte(text), leaf, nil
}

// place returns the order as the server has it: the one that was placed before, if the server still knows it. One that has failed is not placed again
// at once.
func (a *Account) place(ctx context.Context, o *Order, do Steps) (acme.Order, error) {
	if o.URL != "" {
		order, err := a.client.GetOrder(ctx, a.account, acme.Order{Location: o.URL})
		switch {
		case err == nil && order.Status == acme.StatusInvalid:
			return order, a.whyInvalid(ctx, order)
		case err == nil || !errors.As(err, new(acme.Problem)):
			return order, err
		}
	}
	wanted := acme.Order{}
	for _, h := range o.Hosts {
		wanted.Identifiers = append(wanted.Identifiers, acme.Identifier{Type: "dns", Value: h})
	}
	order, err := a.client.NewOrder(ctx, a.account, wanted)
	if err != nil {
		return order, err
	}
	o.URL = order.Location
	return order, do.Placed(ctx)
}

// whyInvalid returns why an order has failed.
func (a *Account) whyInvalid(ctx context.Context, order acme.Order) error {
	if order.Error != nil {
		return *order.Error
	}
	for _, url := range order.Authorizations {
		authorization, err := a.client.GetAuthorization(ctx, a.account, url)
		if err != nil {
			return err
		}
		for _, c := range authorization.Challenges {
			if c.Error != nil {
				return *c.Error
			}
		}
	}
	return refused("the order has failed, or has expired")
}

// validate has the server validate the hosts of an order.
func (a *Account) validate(ctx context.Context, order acme.Order, do Steps) error {
	type pending struct {
		acme.Authorization
		challenge acme.Challenge
	}
	var all []pending
	var answers []Challenge
	for _, url := range order.Authorizations {
		authorization, err := a.client.GetAuthorization(ctx, a.account, url)
		if err != nil {
			return err
		}
		host := authorization.Identifier.Value
		if !slices.ContainsFunc(order.Identifiers, func(i acme.Identifier) bool { return i.Value == host }) {
			return fmt.Errorf("the ACME server validates %q, which nobody has asked for", host)
		}
		if authorization.Status != acme.StatusPending {
			continue
		}
		c := challengeOf(authorization, do.Alternative)
		if c == nil {
			return refused("the ACME server offers neither HTTP-01 nor TLS-ALPN-01 for %s", host)
		}
		if !isToken(c.Token) {
			return fmt.Errorf("the ACME server sends a token for %s that is none", host)
		}
		all = append(all, pending{authorization, *c})
		answers = append(answers, Challenge{gateway.Challenge{Host: host, Token: c.Token, Answer: c.KeyAuthorization}, c.Type == acme.ChallengeTypeTLSALPN01})
	}
	if len(all) == 0 {
		return nil
	}
	if err := do.Present(ctx, answers); err != nil {
		return err
	}
	for _, p := range all {
		if err := a.initiate(ctx, p.Authorization, p.challenge); err != nil {
			return err
		}
	}
	for _, p := range all {
		if _, err := a.client.PollAuthorization(ctx, a.account, p.Authorization); err != nil {
			return ofValidation(err, p.Identifier.Value)
		}
	}
	return nil
}

// initiate has the server begin with a validation, unless another server of the cluster that has died had it begin: ACME servers refuse that.
func (a *Account) initiate(ctx context.Context, of acme.Authorization, c acme.Challenge) error {
	_, err := a.client.InitiateChallenge(ctx, a.account, c)
	if err == nil || !errors.As(err, new(acme.Problem)) {
		return err
	}
	now, getErr := a.client.GetAuthorization(ctx, a.account, of.Location)
	if getErr != nil {
		return getErr
	}
	if slices.ContainsFunc(now.Challenges, func(same acme.Challenge) bool { return same.URL == c.URL && same.Status != acme.StatusPending }) {
		return nil
	}
	return err
}

// challengeOf returns the challenge to take: the preferred one if the server offers it; nil if it offers none of ours.
func challengeOf(a acme.Authorization, alternative bool) *acme.Challenge {
	kinds := []string{acme.ChallengeTypeHTTP01, acme.ChallengeTypeTLSALPN01}
	if alternative {
		slices.Reverse(kinds)
	}
	for _, kind := range kinds {
		if at := slices.IndexFunc(a.Challenges, func(c acme.Challenge) bool { return c.Type == kind }); at >= 0 {
			return &a.Challenges[at]
		}
	}
	return nil
}

// isToken reports whether a text is a token: base64url without padding (RFC 8555, section 8.1).
func isToken(text string) bool {
	return text != "" && len(text) <= 256 && strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") == ""
}
