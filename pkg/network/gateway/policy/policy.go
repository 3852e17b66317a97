// Package policy decides whether the gateway serves a request: by its client's address, how much the client asks for, its password, and its length.
// What it remembers of clients is bounded, whatever they send.
package policy

import (
	"fmt"
	"net/http"
	"net/netip"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// Policy is a policy with what it remembers of clients.
type Policy struct {
	gateway.Policy
	limits *limits
	users  *users
}

// Set are the policies of a configuration.
type Set struct {
	policies map[string]*Policy
	turns    turns
}

// Of returns the policy with a name; nil if there is none.
func (s *Set) Of(name string) *Policy { return s.policies[name] }

// New returns the policies of a configuration. What the policies before remember goes on while their rules stay the same.
func New(config map[string]gateway.Policy, before *Set) *Set {
	out := &Set{policies: make(map[string]*Policy, len(config))}
	if before == nil {
		before = &Set{turns: newTurns()}
	}
	out.turns = before.turns
	for name, of := range config {
		p := &Policy{Policy: of}
		var old Policy
		if p := before.Of(name); p != nil {
			old = *p
		}
		if of.Limits != nil {
			p.limits = newLimits(*of.Limits, old.limits)
		}
		if of.Users != nil {
			p.users = newUsers(of.Users.Hashes, out.turns, old.users)
		}
		out.policies[name] = p
	}
	return out
}

// Answer is that to a request that is not served.
type Answer struct {
	Status int
	Text   string
	Header http.Header
}

func refuse(status int, text string) *Answer {
	return &Answer{Status: status, Text: text, Header: http.Header{}}
}

// Enter returns the answer to a request that is not served because of where it comes from, and how often; nil if it is served. Then leave must
// be called after it.
func (p *Policy) Enter(req *http.Request) (leave func(), instead *Answer) {
	client := Client(req)
	leave = func() {}
	if !p.Clients.Admits(client) {
		return leave, refuse(http.StatusForbidden, "this address may not come in\n")
	}
	if r := p.Redirect; r != nil {
		a := refuse(r.Status, "")
		a.Header.Set("Location", Expand(r.URL, req))
		return leave, a
	}
	if p.limits == nil || gateway.Within(p.Limits.Except, client) {
		return leave, nil
	}
	return p.limits.enter(client)
}

// Admit returns the answer to a request that is not served because of its password or its length; nil if it is served. It changes the request for
// the backend.
func (p *Policy) Admit(w http.ResponseWriter, req *http.Request) *Answer {
	if p.users != nil {
		if instead := p.users.admit(req); instead != nil {
			if instead.Status == http.StatusUnauthorized {
				instead.Header.Set("WWW-Authenticate", fmt.Sprintf(`Basic realm="%s", charset="UTF-8"`, p.Users.Realm))
			}
			return instead
		}
		req.Header.Del("Authorization") // the password is not the backend's
	}
	if p.MaxBody > 0 {
		if req.ContentLength > p.MaxBody {
			return refuse(http.StatusRequestEntityTooLarge, "the body is too long\n")
		}
		if req.Body != nil && req.Body != http.NoBody {
			req.Body = http.MaxBytesReader(w, req.Body, p.MaxBody)
		}
	}
	return nil
}

// Client returns the address of a request's connection; the zero one if it has none.
func Client(req *http.Request) netip.Addr {
	at, _ := netip.ParseAddrPort(req.RemoteAddr)
	return gateway.Client(at)
}

// Scheme returns the scheme of the URL that a request asks for.
func Scheme(req *http.Request) string {
	if req.TLS != nil {
		return "https"
	}
	return "http"
}
