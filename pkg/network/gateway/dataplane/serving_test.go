package dataplane

import (
	"bufio"
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
	"time"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
	"github.com/coracle-dev/coracle/pkg/network/gateway/listening"
	"github.com/coracle-dev/coracle/test/freeport"
)

// TestServing runs Caddy with our modules. There is one test because Caddy is there once in a process.
func TestServing(t *testing.T) {
	s := start(t)
	one, other := backend(t, "one"), backend(t, "other")
	plain, secure := freeport.Port(t), freeport.Port(t)
	config := gateway.Config{
		Listeners: []gateway.Listener{
			{Name: "plain", Port: plain, Protocol: gateway.HTTP, HostsApart: true}, {Name: "secure", Port: secure, Protocol: gateway.HTTPS, HostsApart: true},
		},
		Routes: []gateway.Route{route("a.test", "/", "a", gateway.ToHTTP), route("b.test", "/", "b", gateway.ToHTTP)},
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
		endpoints["a"] = []string{fmt.Sprintf("127.0.0.1:%d", freeport.Port(t)), one}
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
	t.Run("challenges of ACME", func(t *testing.T) { testChallenges(t, s, config, endpoints, plain) })
	t.Run("a real ACME server", func(t *testing.T) { testACME(t, s, config, endpoints, plain, secure) })
	t.Run("protocols of backends", func(t *testing.T) { testProtocols(t, s, config, plain) })
	t.Run("policies", func(t *testing.T) { testPolicies(t, s, config, plain) })
	t.Run("forwarding", func(t *testing.T) { testForwarding(t, s, config, plain) })
	t.Run("TLS to backends", func(t *testing.T) { testBackendTLS(t, s, config, plain) })
	t.Run("gRPC", func(t *testing.T) { testGRPC(t, s, config, plain) })
	t.Run("requests that are refused", func(t *testing.T) { testRefused(t, s, config, plain) })
	t.Run("chunks", func(t *testing.T) { testChunked(t, s, config, plain) })
	t.Run("attacks in HTTP/2", func(t *testing.T) { testRefusedHTTP2(t, s, config, plain, secure) })
	t.Run("headers that backends believe", func(t *testing.T) { testBelieved(t, s, config, plain) })
	t.Run("ways around paths", func(t *testing.T) { testPaths(t, s, config, plain) })
	t.Run("hosts of others", func(t *testing.T) { testApart(t, s, config, secure) })
	t.Run("bodies", func(t *testing.T) { testBodies(t, s, config, plain) })
	t.Run("abuse", func(t *testing.T) { testAbuse(t, s, config, plain) })
	t.Run("requests are counted", func(t *testing.T) { testRequests(t, s, config, plain) })
	t.Run("listeners", func(t *testing.T) { testListeners(t, s, config, secure) })
	t.Run("silent clients", func(t *testing.T) { testSilentClients(t, s, config, plain, secure) })
	t.Run("a WebSocket outlives changes", func(t *testing.T) { testUpgraded(t, s, config, plain) })
	t.Run("certificates", func(t *testing.T) { testCertificates(t, s, config, endpoints, secure) })
	t.Run("streams", func(t *testing.T) { testStreams(t, s, config, secure) })
	t.Run("a port of another program", func(t *testing.T) {
		taken, err := net.Listen("tcp", ":0")
		if err != nil {
			t.Fatal(err)
		}
		defer taken.Close()
		port := uint16(taken.Addr().(*net.TCPAddr).Port)
		config.Listeners = append(config.Listeners, gateway.Listener{Name: "taken", Port: port, Protocol: gateway.HTTP})
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
	t.Run("HTTP and HTTPS on one port", func(t *testing.T) {
		defer s.apply(t, config, endpoints)
		config, port := config, freeport.Port(t)
		config.Listeners = []gateway.Listener{
			{Name: "plain", Port: port, Protocol: gateway.HTTP}, {Name: "secure", Port: port, Protocol: gateway.HTTPS, Addresses: []string{"127.0.0.2"}},
			{Name: "pass", Port: port, Protocol: gateway.Passthrough, Host: "pass.test", Addresses: []string{"127.0.0.2"}},
		}
		if applied := s.apply(t, config, endpoints); len(applied.Refused) != 0 {
			t.Errorf("%v", applied.Refused)
		}
		for range 3 {
			s.get(t, port, "a.test", "/", 200, "one /")
			if got := secureGet(t, fmt.Sprintf("127.0.0.2:%d", port), "a.test"); got != "one /" {
				t.Errorf("%q", got)
			}
			config.Certificates = append(config.Certificates, certificate(t, fmt.Sprintf("Secret a/%d", len(config.Certificates)), "a.test")) // with which Caddy loads its configuration
			s.apply(t, config, endpoints)
		}
		config.Listeners[1].Addresses = nil
		if applied := s.apply(t, config, endpoints); !strings.Contains(applied.Refused[port], "only the former") {
			t.Errorf("%v at the same addresses", applied.Refused)
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

// testProtocols: backends are spoken to as their ports say, with the client's host and its address.
func testProtocols(t *testing.T, s *served, config gateway.Config, port uint16) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Proto, " ", r.Host, " ", r.TLS != nil, " ", r.Header.Get("X-Forwarded-For"), " ", r.Header.Get("X-Forwarded-Proto"))
	})
	plain, h2c, secure := httptest.NewServer(handler), httptest.NewUnstartedServer(handler), httptest.NewTLSServer(handler)
	h2c.Config.Protocols = new(http.Protocols)
	h2c.Config.Protocols.SetUnencryptedHTTP2(true)
	h2c.Start()
	endpoints := gateway.Endpoints{}
	for name, backend := range map[gateway.BackendProtocol]*httptest.Server{gateway.ToHTTP: plain, gateway.ToH2C: h2c, gateway.ToHTTPS: secure} {
		t.Cleanup(backend.Close)
		key := "protocol " + string(name)
		endpoints[key] = []string{backend.Listener.Addr().String()}
		config.Routes = append(config.Routes, route("p.test", "/"+string(name), key, name))
	}
	s.apply(t, config, endpoints)
	s.get(t, port, "p.test", "/", 200, "HTTP/1.1 p.test false 127.0.0.1 http")
	s.get(t, port, "p.test", "/h2c", 200, "HTTP/2.0 p.test false 127.0.0.1 http")
	s.get(t, port, "p.test", "/https", 200, "HTTP/1.1 p.test true 127.0.0.1 http")
}

// testUpgraded: a connection that was upgraded goes on over a change of routes, and over one of certificates, for which Caddy loads its configuration.
func testUpgraded(t *testing.T, s *served, config gateway.Config, port uint16) {
	echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			return
		}
		conn, buffered, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(conn, buffered)
	}))
	t.Cleanup(echo.Close)
	endpoints := gateway.Endpoints{"echo": {echo.Listener.Addr().String()}}
	config.Routes = []gateway.Route{route("w.test", "/", "echo", gateway.ToHTTP)}
	s.apply(t, config, endpoints)
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: w.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	lines := bufio.NewReader(conn)
	answer, err := http.ReadResponse(lines, nil)
	if err != nil || answer.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", answer, err)
	}
	own := certificate(t, "Secret w/w", "w.test")
	for i, change := range []func(){
		func() {}, func() { config.Routes[0].Path = "/other" }, func() { config.Certificates = []gateway.Certificate{own} },
		func() { config.Certificates = nil },
	} {
		change()
		s.apply(t, config, endpoints)
		fmt.Fprintf(conn, "hello %d\n", i)
		if got, err := lines.ReadString('\n'); err != nil || got != fmt.Sprintf("hello %d\n", i) {
			t.Fatalf("after change %d: %q, %v", i, got, err)
		}
	}
	s.draining.Store(true)
	defer s.draining.Store(false)
	config.Routes[0].Path = "/"
	s.apply(t, config, endpoints)
	for upgrade, want := range map[string]string{"\r\nConnection: Upgrade\r\nUpgrade: websocket": "Upgrade", "": "close"} {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: w.test%s\r\n\r\n", upgrade)
		head, _ := io.ReadAll(io.LimitReader(conn, 80))
		if got := strings.ToLower(string(head)); strings.Contains(got, "close") != (want == "close") {
			t.Errorf("another process follows, %q: %q", upgrade, got)
		}
	}
}

// testCertificates: a host gets the certificate that who has the host has now, whatever names others put into theirs.
func testCertificates(t *testing.T, s *served, config gateway.Config, endpoints gateway.Endpoints, port uint16) {
	own, stolen := certificate(t, "Secret a/own", "a.test"), certificate(t, "Secret b/stolen", "a.test")
	wild, below := certificate(t, "Secret w/wild", "*.w.test"), certificate(t, "Secret z/below", "below.w.test")
	garbage := gateway.Certificate{Source: "Secret g/garbage", Chain: "{file.config.json}", Key: own.Key}
	own.Chain = "{env.PATH}\n" + own.Chain
	shared := certificate(t, "Secret a/own", "a.test")
	config.Listeners[1].Certificates = map[string][]string{"a.test": {"Secret a/own"}}
	config.Certificates = []gateway.Certificate{shared, {Source: "Secret c/copy", Chain: shared.Chain, Key: shared.Key}}
	s.apply(t, config, endpoints)
	config.Certificates = []gateway.Certificate{stolen, garbage, own, wild, below, config.Certificates[1]} // own is replaced, and another Secret has the former one
	config.Listeners[1].Certificates = map[string][]string{
		"a.test": {"Secret g/garbage", "Secret a/own"}, "b.test": {"Secret b/stolen"}, "*.w.test": {"Secret w/wild"}, "below.w.test": {"Secret z/below"},
	}
	if applied := s.apply(t, config, endpoints); len(applied.Certificates) != 1 || applied.Certificates["Secret g/garbage"] == "" {
		t.Errorf("%v", applied.Certificates)
	}
	for name, want := range map[string]string{"a.test": "Secret a/own", "x.w.test": "Secret w/wild", "below.w.test": "Secret z/below", "x.y.w.test": "fallback", "c.test": "fallback", "": "fallback"} {
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

// route leads to one backend.
func route(host, path, to string, protocol gateway.BackendProtocol) gateway.Route {
	return gateway.Route{
		Listeners: []string{"plain", "secure", "taken"}, Host: host, Match: gateway.Match{Path: path},
		Backends: []gateway.Backend{{Endpoints: to, Weight: 1, Protocol: protocol}}, Unserved: http.StatusServiceUnavailable,
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
	s, err := newServing(files, listening.New())
	if err != nil {
		t.Fatal(err)
	}
	s.limits = limits{2 * time.Second, bodyTimeout}
	s.http3.Begin()
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

// certificate makes a certificate with a name.
func certificate(t *testing.T, source, name string) gateway.Certificate {
	t.Helper()
	c, err := selfSigned(source, name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
