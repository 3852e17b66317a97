// Package acmeserver runs a real ACME server (test/pebble) for tests.
package acmeserver

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/freeport"
	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/modules"
	"github.com/coracle-dev/coracle/test/registries"
)

// Options of a server.
type Options struct {
	Hosts     map[string][]string // addresses by name, for the server's own name server
	HTTP, TLS int                 // ports that are asked for HTTP-01 and TLS-ALPN-01
	Life      time.Duration       // of certificates
	Authority *registries.Authority
	Binding   map[string]string // keys that accounts must be bound to, if there are any
}

// Server is a running ACME server.
type Server struct {
	Directory string // URL

	t    testing.TB
	root string
	mu   sync.Mutex
	log  bytes.Buffer
}

// Start runs a server at an address and port of a host, with its name server at the next port, or at free ports of this machine if there is no host,
// until the test ends.
func Start(t testing.TB, host *hosts.Host, at netip.AddrPort, o Options) *Server {
	t.Helper()
	names := netip.AddrPortFrom(at.Addr(), at.Port()+1)
	if host == nil {
		at, names = freeport.Loopback(t), freeport.Loopback(t)
	}
	dir := t.TempDir()
	s := &Server{Directory: "https://" + at.String() + "/dir", t: t, root: filepath.Join(dir, "root.crt")}
	cert, key := o.Authority.Sign(t, at.Addr())
	files := map[string][]byte{"tls.crt": cert, "tls.key": key}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	settings, err := json.Marshal(map[string]any{
		"Addr": at.String(), "Cert": filepath.Join(dir, "tls.crt"), "Key": filepath.Join(dir, "tls.key"), "Root": s.root,
		"DNS": names.String(), "Hosts": o.Hosts, "HTTP": o.HTTP, "TLS": o.TLS, "Life": int(o.Life / time.Second), "Binding": o.Binding,
	})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(modules.Build(t, "pebble"), string(settings))
	cmd.Env = append(os.Environ(), "PEBBLE_VA_NOSLEEP=1", "PEBBLE_AUTHZREUSE=0")
	cmd.Stdout, cmd.Stderr = s, s
	start, dial := cmd.Start, net.Dial
	if host != nil {
		start = func() error { return hosts.On(host.PID(), cmd.Start) }
		dial = func(network, addr string) (net.Conn, error) { return host.Dial(t.Context(), network, addr) }
	}
	if err := start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(s.Log())
		}
	})
	hosts.Eventually(t, 20*time.Second, func() error {
		conn, err := dial("tcp", at.String())
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	return s
}

// Write implements io.Writer, for the server's log.
func (s *Server) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.Write(text)
}

// Log is what the server has logged.
func (s *Server) Log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

// Count returns how many lines of the log contain a text.
func (s *Server) Count(text string) (n int) {
	for line := range strings.Lines(s.Log()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// Root is what verifies the certificates that the server issues, as PEM.
func (s *Server) Root() []byte {
	s.t.Helper()
	text, err := os.ReadFile(s.root)
	if err != nil {
		s.t.Fatal(err)
	}
	return text
}

// Roots are the same for clients.
func (s *Server) Roots() *x509.CertPool {
	s.t.Helper()
	pool := x509.NewCertPool()
	if text := s.Root(); !pool.AppendCertsFromPEM(text) {
		s.t.Fatalf("no certificate in %q", text)
	}
	return pool
}
