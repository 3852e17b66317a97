package acme

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/mholt/acmez/v3/acme"

	"github.com/coracle-dev/coracle/pkg/core/config"
)

// ReadServer returns the server of the settings.
func ReadServer(c config.ACME) (Server, error) {
	s := Server{Directory: c.Server, Email: c.Email}
	if c.CAFile != "" {
		text, err := os.ReadFile(c.CAFile)
		if err != nil {
			return s, fmt.Errorf("reading the file of --acme-ca-file: %w", err)
		}
		s.Roots = x509.NewCertPool()
		if !s.Roots.AppendCertsFromPEM(text) {
			return s, errors.New("there is no certificate in the file of --acme-ca-file")
		}
	}
	if c.BindingFile != "" {
		text, err := os.ReadFile(c.BindingFile)
		if err != nil {
			return s, fmt.Errorf("reading the file of --acme-binding-file: %w", err)
		}
		words := strings.Fields(string(text))
		if len(words) != 2 {
			return s, fmt.Errorf("there are %d words in the file of --acme-binding-file, and not a key ID and a MAC key", len(words))
		}
		s.Binding = &acme.EAB{KeyID: words[0], MACKey: words[1]}
	}
	return s, nil
}

// Server is an ACME server.
type Server struct {
	Directory string // URL
	Email     string // for the account; "" for none
	// Roots verify the server's own certificate. Nil means the system's.
	Roots *x509.CertPool
	// Binding ties the account to one that the server's operator has given out.
	Binding *acme.EAB
}

// Bounds of what is asked of an ACME server.
const (
	requestTimeout = 30 * time.Second
	orderTimeout   = 2 * time.Minute
	maxAnswer      = 1 << 20 // bytes
)

// Account is an account at an ACME server.
type Account struct {
	client  *acme.Client
	account acme.Account
}

// Open finds the account of a key, or makes it, which agrees to the server's terms.
func (s Server) Open(ctx context.Context, key crypto.Signer) (*Account, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: s.Roots}
	a := &Account{client: &acme.Client{
		Directory: s.Directory, UserAgent: "coracle", PollTimeout: orderTimeout,
		HTTPClient: &http.Client{Timeout: requestTimeout, Transport: bounded{transport}},
	}}
	wanted := acme.Account{TermsOfServiceAgreed: true, PrivateKey: key}
	if s.Email != "" {
		wanted.Contact = []string{"mailto:" + s.Email}
	}
	if s.Binding != nil {
		if err := wanted.SetExternalAccountBinding(ctx, a.client, *s.Binding); err != nil {
			return nil, fmt.Errorf("binding the account: %w", err)
		}
	}
	var err error
	if a.account, err = a.client.NewAccount(ctx, wanted); err != nil {
		return nil, fmt.Errorf("asking for an account: %w", err)
	}
	return a, nil
}

// bounded cuts the bodies of answers.
type bounded struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		answer.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(answer.Body, maxAnswer), answer.Body}
	}
	return answer, err
}
