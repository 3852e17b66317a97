package policy

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// TestMatches: hashes of htpasswd and of openssl, each of the password "secret".
func TestMatches(t *testing.T) {
	for _, hash := range []string{
		"$2y$05$6ik1CbsZYmGG5OHBO6bWTehb3PDDQMyBfyPo25SOfboIlPE2cEIpS",
		"$apr1$lZL6V/ci$PR6QJXkRFUzdUuaYcwrI//", "$apr1$x$12YdXEY0/hH4rDNkmZupO0",
		"{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=",
		"{SSHA}1G904nLkTkGWjKNnQuB/hpWXC/hzYWx0c2FsdA==",
	} {
		if !Matches(hash, "secret") {
			t.Errorf("%s is not taken for the right one", hash)
		}
		for _, wrong := range []string{"", "Secret", "secret ", "a long password of more than sixteen characters"} {
			if Matches(hash, wrong) {
				t.Errorf("%s is taken for that of %q", hash, wrong)
			}
		}
	}
	for _, hash := range []string{"", "secret", "$apr1$", "$2y$", "{SHA}", "{SSHA}", "{SSHA}AAAA"} {
		for _, password := range []string{"", "secret"} {
			if Matches(hash, password) {
				t.Errorf("%q is a hash of %q", hash, password)
			}
		}
	}
}

func from(address string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = address
	return r
}

// TestRates: a client has its burst, then one for each step; others have their own.
func TestRates(t *testing.T) {
	now := time.Unix(1000, 0)
	rules := gateway.Limits{Rates: []gateway.Rate{{Requests: 10, Per: time.Second, Burst: 5}, {Requests: 60, Per: time.Hour, Burst: 1000}}}
	p := New(map[string]gateway.Policy{"p": {Limits: &rules}}, nil).Of("p")
	p.limits.now = func() time.Time { return now }
	served := func(address string, n int) (out int) {
		for range n {
			if _, instead := p.Enter(from(address)); instead == nil {
				out++
			} else if instead.Status != http.StatusTooManyRequests {
				t.Fatalf("%+v", instead)
			}
		}
		return out
	}
	if n := served("192.0.2.1:1", 20); n != 6 {
		t.Errorf("%d at once", n)
	}
	if n := served("192.0.2.2:1", 1); n != 1 {
		t.Error("another client is refused")
	}
	if n := served("[2001:db8::1]:1", 6) + served("[2001:db8::2]:1", 6) + served("[2001:db8:0:1::2]:1", 1); n != 7 {
		t.Errorf("%d of two networks of IPv6", n)
	}
	for range 10 {
		now = now.Add(100 * time.Millisecond)
		if n := served("192.0.2.1:1", 2); n != 1 {
			t.Errorf("%d in a step", n)
		}
	}
}

// TestBounded: what is remembered does not grow with the number of clients.
func TestBounded(t *testing.T) {
	l := newLimits(gateway.Limits{Rates: []gateway.Rate{{Requests: 1, Per: time.Hour}}, Concurrent: 1}, nil)
	address := netip.MustParseAddr("10.0.0.0")
	for range 5 * maxClients {
		leave, instead := l.enter(address)
		if instead != nil {
			t.Fatal("refused")
		}
		leave()
		address = address.Next()
	}
	if n := len(l.rates[0].young) + len(l.rates[0].old); n > 2*maxClients || len(l.served) != 0 {
		t.Errorf("%d and %d clients are remembered", n, len(l.served))
	}
}

func TestConcurrent(t *testing.T) {
	p := New(map[string]gateway.Policy{"p": {Limits: &gateway.Limits{Concurrent: 2}}}, nil).Of("p")
	one, _ := p.Enter(from("192.0.2.1:1"))
	_, _ = p.Enter(from("192.0.2.1:2"))
	if _, instead := p.Enter(from("192.0.2.1:3")); instead == nil {
		t.Error("a third one is served")
	}
	one()
	if _, instead := p.Enter(from("192.0.2.1:3")); instead != nil {
		t.Error("none is served after another one has ended")
	}
}

// TestGuesses: many who guess passwords do not keep out one who was let in, and take turns.
func TestGuesses(t *testing.T) {
	hash := "$2y$05$6ik1CbsZYmGG5OHBO6bWTehb3PDDQMyBfyPo25SOfboIlPE2cEIpS"
	u := newUsers(map[string]string{"ann": hash}, newTurns(), nil)
	right := from("192.0.2.1:1")
	right.SetBasicAuth("ann", "secret")
	if instead := u.admit(right); instead != nil {
		t.Fatalf("%+v", instead)
	}
	for range cap(u.turns) { // as if others were compared
		u.turns <- struct{}{}
	}
	var all sync.WaitGroup
	for n := range 2 * maxWaiting {
		guess := from("192.0.2.2:1")
		guess.SetBasicAuth("ann", fmt.Sprint(n))
		all.Go(func() {
			if instead := u.admit(guess); instead == nil || instead.Status == http.StatusOK {
				t.Error("a guess is let in")
			}
		})
	}
	if instead := u.admit(right); instead != nil {
		t.Errorf("who was let in is not: %+v", instead)
	}
	for range cap(u.turns) {
		<-u.turns
	}
	all.Wait()
	if n := u.waiting.Load(); n != 0 {
		t.Errorf("%d wait", n)
	}
}
