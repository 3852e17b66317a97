package dataplane

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// TestServing runs Caddy with our modules. There is one test because Caddy is there once in a process.
func TestServing(t *testing.T) {
	s := start(t)
	one, other := backend(t, "one"), backend(t, "other")
	plain, secure := freePort(t), freePort(t)
	config := gateway.Config{
		Listeners: []gateway.Listener{{Port: plain}, {Port: secure, TLS: true}},
		Routes:    []gateway.Route{{Host: "a.test", Path: "/", Backend: "a"}, {Host: "b.test", Path: "/", Backend: "b"}},
	}
	endpoints := gateway.Endpoints{"a": {one}, "b": {}}
	s.apply(t, config, endpoints)

	t.Run("routes", func(t *testing.T) {
		s.get(t, plain, "a.test", "/x", 200, "one /x")
		s.get(t, plain, "A.test:80", "/x%2fy?q=1", 200, "one /x%2fy?q=1")
		s.get(t, plain, "b.test", "/", 503, "no endpoint is ready")
		s.get(t, plain, "c.test", "/", 404, "nothing serves this host")
	})
	t.Run("a connection outlives changes of routes and endpoints", func(t *testing.T) {
		dials := 0
		client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			dials++
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}}}
		defer client.CloseIdleConnections()
		for i := range 20 {
			config.Routes[1].Path = fmt.Sprintf("/%d", i)
			endpoints["a"] = []string{[]string{one, other}[i%2]}
			s.apply(t, config, endpoints)
			request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/", plain), nil)
			request.Host = "a.test"
			answer, err := client.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(answer.Body)
			answer.Body.Close()
			if want := []string{"one /", "other /"}[i%2]; string(body) != want {
				t.Errorf("%q after change %d, want %q", body, i, want)
			}
		}
		if dials != 1 {
			t.Errorf("%d connections", dials)
		}
	})
	t.Run("an endpoint that does not accept connections", func(t *testing.T) {
		endpoints["a"] = []string{fmt.Sprintf("127.0.0.1:%d", freePort(t)), one}
		s.apply(t, config, endpoints)
		for range 4 {
			s.get(t, plain, "a.test", "/", 200, "one /")
		}
	})
	t.Run("placeholders of Caddy are text", func(t *testing.T) {
		for _, path := range []string{"/{file.config.json}", "/{env.PATH}", "/{http.request.host}"} {
			config.Routes[1].Path = path
			endpoints["b"] = []string{one}
			s.apply(t, config, endpoints)
			s.get(t, plain, "b.test", strings.NewReplacer("{", "%7B", "}", "%7D").Replace(path), 200, "one /%7B")
			s.get(t, plain, "b.test", "/b.test", 404, "nothing")
		}
	})
	t.Run("certificates", func(t *testing.T) { testCertificates(t, s, config, endpoints, secure) })
	t.Run("a port of another program", func(t *testing.T) {
		taken, err := net.Listen("tcp", ":0")
		if err != nil {
			t.Fatal(err)
		}
		defer taken.Close()
		port := uint16(taken.Addr().(*net.TCPAddr).Port)
		config.Listeners = append(config.Listeners, gateway.Listener{Port: port})
		if applied := s.apply(t, config, endpoints); !strings.Contains(applied.Refused[port], "in use") || len(applied.Refused) != 1 {
			t.Errorf("%v", applied.Refused)
		}
		s.get(t, plain, "a.test", "/", 200, "one /")
		taken.Close()
		if applied := s.apply(t, config, endpoints); len(applied.Refused) != 0 {
			t.Errorf("%v when it is free", applied.Refused)
		}
		s.get(t, port, "a.test", "/", 200, "one /")
	})
	t.Run("a file that cannot be read changes nothing", func(t *testing.T) {
		if err := os.WriteFile(s.files.Config(), []byte(`{"routes": [`), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := s.serving.apply(); err == nil || !strings.Contains(err.Error(), "config.json") {
			t.Errorf("%v", err)
		}
		s.get(t, plain, "a.test", "/", 200, "one /")
	})
}

// testCertificates: a host gets the certificate of who has the host, whatever names others put into theirs.
func testCertificates(t *testing.T, s *served, config gateway.Config, endpoints gateway.Endpoints, port uint16) {
	own, stolen := certificate(t, "Secret a/own", "a.test"), certificate(t, "Secret b/stolen", "a.test")
	wild := certificate(t, "Secret w/wild", "*.w.test")
	own.Hosts, stolen.Hosts, wild.Hosts = []string{"a.test"}, []string{"b.test"}, []string{"*.w.test"}
	garbage := gateway.Certificate{Source: "Secret g/garbage", Hosts: []string{"a.test"}, Chain: "{file.config.json}", Key: own.Key}
	own.Chain = "{env.PATH}\n" + own.Chain
	config.Certificates = []gateway.Certificate{stolen, garbage, own, wild}
	if applied := s.apply(t, config, endpoints); len(applied.Certificates) != 1 || applied.Certificates["Secret g/garbage"] == "" {
		t.Errorf("%v", applied.Certificates)
	}
	for name, want := range map[string]string{"a.test": "Secret a/own", "x.w.test": "Secret w/wild", "x.y.w.test": "fallback", "b.test": "fallback", "c.test": "fallback", "": "fallback"} {
		conn, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port), &tls.Config{ServerName: name, InsecureSkipVerify: true, NextProtos: []string{"h2"}})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := conn.ConnectionState()
		conn.Close()
		for _, c := range append(config.Certificates, s.fallback) {
			if block, _ := pem.Decode([]byte(c.Chain)); block != nil && string(block.Bytes) == string(got.PeerCertificates[0].Raw) && c.Source != want {
				t.Errorf("%s: the certificate of %s, want %s", name, c.Source, want)
			}
		}
		if got.NegotiatedProtocol != "h2" {
			t.Errorf("%s: protocol %q", name, got.NegotiatedProtocol)
		}
	}
}

// served is what the test serves.
type served struct {
	*serving
	writer gateway.Writer
}

func start(t *testing.T) *served {
	t.Helper()
	files := gateway.Files(t.TempDir())
	s, err := newServing(files)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.stop() })
	return &served{s, gateway.Writer{Files: files}}
}

func (s *served) apply(t *testing.T, config gateway.Config, endpoints gateway.Endpoints) gateway.Applied {
	t.Helper()
	if _, err := s.writer.Write(config, endpoints); err != nil {
		t.Fatal(err)
	}
	applied, err := s.serving.apply()
	if err != nil {
		t.Fatal(err)
	}
	return applied
}

func (s *served) get(t *testing.T, port uint16, host, path string, status int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d%s", port, path), nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Host = host
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Error(err)
		return
	}
	defer answer.Body.Close()
	got, _ := io.ReadAll(answer.Body)
	if answer.StatusCode != status || !strings.HasPrefix(string(got), body) {
		t.Errorf("%s%s: %d %q, want %d %q", host, path, answer.StatusCode, got, status, body)
	}
}

// backend answers with its name and the path.
func backend(t *testing.T, name string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, name+" "+r.RequestURI)
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func freePort(t *testing.T) uint16 {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

// certificate makes a certificate with a name.
func certificate(t *testing.T, source, name string) gateway.Certificate {
	t.Helper()
	c, err := selfSigned(source, name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
