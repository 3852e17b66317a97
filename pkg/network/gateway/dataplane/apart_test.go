package dataplane

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// testApart: listeners of Gateways get neither requests nor handshakes for hosts of Ingresses, whatever they say of clients' certificates.
func testApart(t *testing.T, s *served, config gateway.Config, port uint16) {
	server := newAuthority(t, "server")
	issue := func(name string) string {
		own, _ := server.issue(t, "Secret p/"+name, name)
		config.Certificates = append(config.Certificates, own)
		return own.Source
	}
	taking := func(name, host string, protocol gateway.Protocol) gateway.Listener {
		l := gateway.Listener{Name: name, Host: host, Port: port, Protocol: protocol, Certificates: map[string][]string{"": {issue(name)}}}
		if protocol == gateway.HTTPS && host != "own.test" {
			l.ClientAuthorities = server.pem()
		}
		return l
	}
	config.Listeners = slices.Clone(config.Listeners)
	config.Listeners[1].Certificates = map[string][]string{"a.test": {issue("a")}}
	config.Listeners = append(config.Listeners,
		taking("other-a", "a.test", gateway.HTTPS), taking("other-b", "b.test", gateway.HTTPS), taking("other-w", "x.w.test", gateway.HTTPS),
		taking("other-own", "own.test", gateway.HTTPS), taking("other-tls", "c.test", gateway.TLS), taking("other-pass", "y.w.test", gateway.Passthrough))
	config.Routes = nil
	for _, host := range []string{"a.test", "b.test", "c.test", "*.w.test"} {
		config.Routes = append(config.Routes, route(host, "/app", "mine", gateway.ToHTTP))
	}
	for _, name := range []string{"other-a", "other-b", "other-w", "other-own"} {
		r := route("", "/", "theirs", gateway.ToHTTP)
		r.Listeners = []string{name}
		config.Routes = append(config.Routes, r)
	}
	for _, name := range []string{"other-tls", "other-pass"} {
		config.Streams = append(config.Streams, gateway.Stream{Listeners: []string{name}, Backends: []gateway.Backend{{Endpoints: "theirs", Weight: 1}}})
	}
	if applied := s.apply(t, config, gateway.Endpoints{"mine": {backend(t, "mine")}, "theirs": {backend(t, "theirs")}}); len(applied.Refused) != 0 {
		t.Errorf("%+v", applied)
	}
	for _, c := range []struct {
		host, path, cert string
		status           int
		body             string
	}{
		{"a.test", "/app", "Secret p/a", 200, "mine /app"},
		{"a.test", "/.well-known/acme-challenge/x", "Secret p/a", 404, "nothing"},
		{"b.test", "/app", "", 200, "mine /app"},
		{"b.test", "/", "", 404, "nothing"},
		{"c.test", "/app", "", 200, "mine /app"},
		{"x.w.test", "/app", "", 200, "mine /app"},
		{"y.w.test", "/app", "", 200, "mine /app"},
		{"own.test", "/", "Secret p/other-own", 200, "theirs /"},
	} {
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d%s", port, c.path), nil)
		request.Host = c.host
		answer, err := direct(&tls.Config{ServerName: c.host, InsecureSkipVerify: true}).Do(request)
		if err != nil {
			t.Errorf("%s: %v", c.host, err)
			continue
		}
		body, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		cert := answer.TLS.PeerCertificates[0]
		if of := cert.Subject.CommonName; c.cert == "" && cert.VerifyHostname(fallbackName) != nil || c.cert != "" && of != c.cert {
			t.Errorf("%s: the certificate of %q, want %q", c.host, of, c.cert)
		}
		if answer.StatusCode != c.status || len(body) < len(c.body) || string(body[:len(c.body)]) != c.body {
			t.Errorf("%s%s: %d %q, want %d %q", c.host, c.path, answer.StatusCode, body, c.status, c.body)
		}
	}
	testWantingBeside(t, s, config, port)
}

// testWantingBeside: a listener for all hosts that wants clients' certificates serves those who show one beside Ingresses, and nobody whose handshake was for an Ingress, be it only for
// the host of a certificate.
func testWantingBeside(t *testing.T, s *served, config gateway.Config, port uint16) {
	clients := newAuthority(t, "clients")
	_, mine := clients.issue(t, "me")
	named, own := certificate(t, "Secret p/named", "named.test"), certificate(t, "Secret p/wanting", "wanting.test")
	config.Certificates = append(config.Certificates, named, own)
	config.Listeners = slices.Clone(config.Listeners[:2])
	config.Listeners[1].Certificates = map[string][]string{"a.test": {"Secret p/a"}, "named.test": {named.Source}}
	config.Listeners = append(config.Listeners, gateway.Listener{
		Name: "wanting", Port: port, Protocol: gateway.HTTPS, ClientAuthorities: clients.pem(), Certificates: map[string][]string{"": {own.Source}},
	})
	r := route("", "/", "theirs", gateway.ToHTTP)
	r.Listeners = []string{"wanting"}
	config.Routes, config.Streams = []gateway.Route{route("a.test", "/app", "mine", gateway.ToHTTP), r}, nil
	s.apply(t, config, gateway.Endpoints{"mine": {backend(t, "mine")}, "theirs": {backend(t, "theirs")}})
	for _, c := range []struct {
		name, host string
		shows      bool
		status     int // 0: the handshake fails
	}{
		{"other.test", "other.test", true, 200}, {"other.test", "named.test", true, 200}, {"other.test", "other.test", false, 0}, {"", "other.test", false, 0},
		{"a.test", "a.test", false, 200}, {"a.test", "other.test", true, 404}, {"a.test", "other.test", false, 404},
		{"named.test", "named.test", false, 404}, {"named.test", "other.test", false, 404}, {"named.test", "other.test", true, 404},
	} {
		config := &tls.Config{ServerName: c.name, InsecureSkipVerify: true}
		if c.shows {
			config.Certificates = []tls.Certificate{mine}
		}
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d/app", port), nil)
		request.Host = c.host
		status := 0
		if answer, err := direct(config).Do(request); err == nil {
			answer.Body.Close()
			status = answer.StatusCode
		}
		if status != c.status {
			t.Errorf("%q for %s, a certificate %v: %d, want %d", c.name, c.host, c.shows, status, c.status)
		}
	}
}
