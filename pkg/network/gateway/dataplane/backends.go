package dataplane

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// way is how backends of a kind are spoken to, with the connections to them.
type way struct {
	*http.Transport
	scheme string
	failed error // why there is none
}

// RoundTrip implements http.RoundTripper.
func (w *way) RoundTrip(req *http.Request) (*http.Response, error) {
	if w.failed != nil {
		return nil, w.failed
	}
	return w.Transport.RoundTrip(req)
}

// transports are the ways to all backends. Those of the same kind share one.
type transports struct {
	plain  map[gateway.BackendProtocol]*way
	secure map[*gateway.BackendTLS]*way
	shared map[[sha256.Size]byte]*way // by what makes up the kind
}

// maxAnswerHeader bounds in bytes the headers of a backend's answer.
const maxAnswerHeader = 256 << 10

func newWay(p gateway.BackendProtocol, secured *tls.Config) *way {
	protocols := new(http.Protocols)
	switch {
	case p == gateway.ToH2C && secured != nil:
		protocols.SetHTTP2(true)
	case p == gateway.ToH2C:
		protocols.SetUnencryptedHTTP2(true)
	case secured != nil:
		protocols.SetHTTP1(true)
		protocols.SetHTTP2(true)
	default:
		protocols.SetHTTP1(true)
	}
	w := &way{scheme: "http", Transport: &http.Transport{
		DialContext: dial, Protocols: protocols, TLSClientConfig: secured, TLSHandshakeTimeout: 5 * time.Second,
		MaxIdleConnsPerHost: 128, IdleConnTimeout: time.Minute, DisableCompression: true, MaxResponseHeaderBytes: maxAnswerHeader,
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}}
	if secured != nil {
		w.scheme = "https"
	}
	return w
}

// newTransports returns the ways for a configuration. What is the same as before goes on with its connections; the others are closed when they
// are idle.
func newTransports(config gateway.Config, before *transports) *transports {
	t := &transports{secure: map[*gateway.BackendTLS]*way{}, shared: map[[sha256.Size]byte]*way{}}
	if before != nil {
		t.plain = before.plain
	} else {
		t.plain = map[gateway.BackendProtocol]*way{
			gateway.ToHTTP: newWay(gateway.ToHTTP, nil), gateway.ToH2C: newWay(gateway.ToH2C, nil),
			gateway.ToHTTPS: newWay(gateway.ToHTTPS, &tls.Config{InsecureSkipVerify: true}), //nolint:gosec // as Ingresses ask for
		}
	}
	own := map[string]gateway.Certificate{}
	for _, c := range config.Certificates {
		own[c.Source] = c
	}
	add := func(b *gateway.Backend) {
		if b.TLS != nil {
			t.secure[b.TLS] = t.share(b, own[b.TLS.Certificate], before)
		}
	}
	for i := range config.Routes {
		for j := range config.Routes[i].Backends {
			add(&config.Routes[i].Backends[j])
		}
		for j := range config.Routes[i].Mirrors {
			add(&config.Routes[i].Mirrors[j].Backend)
		}
	}
	if before != nil {
		for kind, w := range before.shared {
			if t.shared[kind] == nil && w.Transport != nil {
				w.CloseIdleConnections()
			}
		}
	}
	return t
}

func (t *transports) share(b *gateway.Backend, own gateway.Certificate, before *transports) *way {
	text, _ := json.Marshal([]any{b.Protocol == gateway.ToH2C, b.TLS, own})
	kind := sha256.Sum256(text)
	if w := t.shared[kind]; w != nil {
		return w
	}
	if before != nil && before.shared[kind] != nil {
		t.shared[kind] = before.shared[kind]
		return t.shared[kind]
	}
	config, err := verified(b.TLS, own)
	if err != nil {
		t.shared[kind] = &way{failed: fmt.Errorf("TLS to the backend: %w", err)}
	} else {
		t.shared[kind] = newWay(b.Protocol, config)
	}
	return t.shared[kind]
}

// of returns the way to a backend.
func (t *transports) of(b *gateway.Backend) *way {
	if b.TLS != nil {
		return t.secure[b.TLS]
	}
	if w := t.plain[b.Protocol]; w != nil {
		return w
	}
	return t.plain[gateway.ToHTTP]
}

// verified returns with what a backend's certificate is verified.
func verified(b *gateway.BackendTLS, own gateway.Certificate) (*tls.Config, error) {
	var roots *x509.CertPool // nil means the system's
	if b.Authorities != "" {
		if roots = x509.NewCertPool(); !roots.AppendCertsFromPEM([]byte(b.Authorities)) {
			return nil, errors.New("there is no certificate among its authorities")
		}
	}
	config := &tls.Config{ServerName: b.Host, InsecureSkipVerify: true, VerifyConnection: func(s tls.ConnectionState) error { //nolint:gosec // verified here
		return verify(s.PeerCertificates, roots, b)
	}}
	if b.Certificate != "" {
		pair, err := tls.X509KeyPair([]byte(own.Chain), []byte(own.Key))
		if err != nil {
			return nil, fmt.Errorf("the gateway's certificate, %s: %w", b.Certificate, err)
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	return config, nil
}

func verify(chain []*x509.Certificate, roots *x509.CertPool, b *gateway.BackendTLS) error {
	if len(chain) == 0 {
		return errors.New("the backend has no certificate")
	}
	options := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
	for _, c := range chain[1:] {
		options.Intermediates.AddCert(c)
	}
	if _, err := chain[0].Verify(options); err != nil {
		return err
	}
	if len(b.Names) == 0 {
		return chain[0].VerifyHostname(b.Host)
	}
	for _, name := range b.Names {
		if hasName(chain[0], name) {
			return nil
		}
	}
	return fmt.Errorf("the backend's certificate has none of the names %s", strings.Join(b.Names, ", "))
}

// hasName reports whether a certificate has a URI, or a DNS name.
func hasName(c *x509.Certificate, name string) bool {
	if !strings.Contains(name, ":") {
		return c.VerifyHostname(name) == nil
	}
	want, err := url.Parse(name)
	if err != nil {
		return false
	}
	for _, u := range c.URIs {
		if u.String() == want.String() {
			return true
		}
	}
	return false
}
