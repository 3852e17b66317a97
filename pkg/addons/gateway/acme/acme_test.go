package acme

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mholt/acmez/v3/acme"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
	"github.com/coracle-dev/coracle/test/acmeserver"
	"github.com/coracle-dev/coracle/test/registries"
)

// site answers what it is asked for.
type site struct {
	mu      sync.Mutex
	answers map[string]string
	asked   int
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	host, _, _ := net.SplitHostPort(r.Host)
	if text, ok := s.answers[host+r.URL.Path]; ok {
		_, _ = io.WriteString(w, text)
		return
	}
	http.Error(w, "not\n\x1b[31mhere", http.StatusNotFound)
}

func (s *site) steps(placed *int) Steps {
	return Steps{
		Placed: func(context.Context) error { *placed++; return nil },
		Present: func(_ context.Context, all []Challenge) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, c := range all {
				s.answers[c.Host+gateway.ChallengePath+c.Token] = c.Answer
			}
			return nil
		},
	}
}

// TestObtain gets certificates from a real ACME server.
func TestObtain(t *testing.T) {
	s := &site{answers: map[string]string{}}
	web := httptest.NewServer(s)
	defer web.Close()
	authority := registries.NewAuthority(t, "of the ACME server")
	server := acmeserver.Start(t, nil, netip.AddrPort{}, acmeserver.Options{
		Hosts: map[string][]string{"a.test": {"127.0.0.1"}, "b.test": {"127.0.0.1"}}, HTTP: web.Listener.Addr().(*net.TCPAddr).Port, Life: time.Hour,
		Authority: authority, Binding: map[string]string{"me": "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W"},
	})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority.PEM)
	at := Server{Directory: server.Directory, Email: "me@example.com", Roots: roots, Binding: &acme.EAB{KeyID: "me", MACKey: "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W"}}
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	open := func(s Server) (*Account, error) { return s.Open(t.Context(), key) }

	stranger := at
	stranger.Roots = nil
	if _, err := open(stranger); !errors.As(err, new(*tls.CertificateVerificationError)) {
		t.Errorf("a server that nobody vouches for: %v", err)
	}
	unbound := at
	unbound.Binding = nil
	if _, err := open(unbound); err == nil || !strings.Contains(err.Error(), "externalAccountRequired") {
		t.Errorf("without a binding: %v", err)
	}
	account, err := open(at)
	if err != nil {
		t.Fatal(err)
	}
	again, err := open(at)
	if err != nil || again.account.Location != account.account.Location {
		t.Errorf("the same key has accounts %s and %s, %v", account.account.Location, again.account.Location, err)
	}

	placed := 0
	order, err := NewOrder([]string{"a.test", "b.test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("this server dies before it is validated", func(t *testing.T) {
		dying := s.steps(&placed)
		dying.Present = func(context.Context, []Challenge) error { return errors.New("killed") }
		if _, _, err := account.Obtain(t.Context(), order, dying); err == nil || errors.As(err, new(Refusal)) || order.URL == "" {
			t.Fatalf("%v %q", err, order.URL)
		}
	})
	var chain []byte
	t.Run("another server goes on with the order", func(t *testing.T) {
		if chain, _, err = again.Obtain(t.Context(), order, s.steps(&placed)); err != nil {
			t.Fatal(err)
		}
		block, rest := pem.Decode(chain)
		leaf, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		between := x509.NewCertPool()
		between.AppendCertsFromPEM(rest)
		for _, host := range order.Hosts {
			if _, err := leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: server.Roots(), Intermediates: between}); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("a server that died when it had the certificate", func(t *testing.T) {
		asked := s.asked
		same, _, err := again.Obtain(t.Context(), order, s.steps(&placed))
		if err != nil || string(same) != string(chain) || placed != 1 || s.asked != asked {
			t.Errorf("another certificate: %v, %d orders were placed, %d requests to the site", err, placed, s.asked-asked)
		}
	})
	for host, want := range map[string]string{
		"missing.test":  "missing.test",         // there is no such name
		"10.0.0.1":      "",                     // no name at all
		"*.wild.a.test": "nobody has asked for", // the server validates the name without the asterisk
	} {
		t.Run(host, func(t *testing.T) {
			order, err := NewOrder([]string{host})
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := account.Obtain(t.Context(), order, s.steps(&placed)); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			} else {
				t.Log(err)
			}
		})
	}
	t.Run("another site has the name", func(t *testing.T) {
		order, err := NewOrder([]string{"a.test"})
		if err != nil {
			t.Fatal(err)
		}
		elsewhere := Steps{Placed: func(context.Context) error { return nil }, Present: func(context.Context, []Challenge) error { return nil }}
		_, _, err = account.Obtain(t.Context(), order, elsewhere)
		if refusal := new(Refusal); !errors.As(err, refusal) || refusal.RateLimited() || strings.ContainsAny(err.Error(), "\n\x1b") {
			t.Errorf("%q", err)
		}
		before := server.Count("Added order") // a server that died before it knew goes on with the order, and gets the same answer
		if _, _, later := again.Obtain(t.Context(), order, elsewhere); later == nil || later.Error() != err.Error() || server.Count("Added order") != before {
			t.Errorf("%v, and later %v", err, later)
		}
	})
}
