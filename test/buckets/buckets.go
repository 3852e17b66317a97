// Package buckets runs a real server of S3 (test/s3server) for tests, over HTTP or TLS.
package buckets

import (
	"encoding/json"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/modules"
	"github.com/coracle-dev/coracle/test/registries"
)

// Server is a server of S3 with one bucket.
type Server struct {
	Addr           string // HOST:PORT
	Bucket         string
	Access, Secret string
	// Dir is the directory that holds the bucket's objects.
	Dir string
	// CA is the file with the certificate of its authority, "" for HTTP.
	CA string

	t    testing.TB
	host *hosts.Host
	cert string
	key  string
	cmd  *exec.Cmd
}

// Start runs a server at an address of a host, or of this one if it is nil, until the test ends. It speaks TLS if there is an authority.
func Start(t testing.TB, host *hosts.Host, addr string, authority *registries.Authority) *Server {
	t.Helper()
	dir := t.TempDir()
	s := &Server{Addr: addr, Bucket: "copies", Access: "access", Secret: "of-this-test", Dir: filepath.Join(dir, "buckets", "copies"), t: t, host: host}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if authority != nil {
		ip, _, _ := net.SplitHostPort(addr)
		cert, key := authority.Sign(t, netip.MustParseAddr(ip))
		s.CA, s.cert, s.key = filepath.Join(dir, "ca.crt"), filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
		for path, text := range map[string][]byte{s.CA: authority.PEM, s.cert: cert, s.key: key} {
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.Serve(false)
	t.Cleanup(s.Stop)
	return s
}

// Serve starts the server again after Stop, so that it refuses writes if readOnly.
func (s *Server) Serve(readOnly bool) {
	s.t.Helper()
	settings, err := json.Marshal(map[string]any{
		"Addr": s.Addr, "Dir": filepath.Dir(s.Dir), "Access": s.Access, "Secret": s.Secret, "Cert": s.cert, "Key": s.key, "ReadOnly": readOnly,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.cmd = exec.Command(modules.Build(s.t, "s3server"), string(settings))
	s.cmd.Stdout, s.cmd.Stderr = s.t.Output(), s.t.Output()
	start, dial := s.cmd.Start, net.Dial
	if s.host != nil {
		start = func() error { return hosts.On(s.host.PID(), s.cmd.Start) }
		dial = func(network, addr string) (net.Conn, error) { return s.host.Dial(s.t.Context(), network, addr) }
	}
	if err := start(); err != nil {
		s.t.Fatal(err)
	}
	hosts.Eventually(s.t, 20*time.Second, func() error {
		conn, err := dial("tcp", s.Addr)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
}

// Stop ends the server.
func (s *Server) Stop() {
	if s.cmd.ProcessState == nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	}
}

// PID is the server's process.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Files returns the paths of all objects, relative to the bucket, with their sizes.
func (s *Server) Files() map[string]int64 {
	s.t.Helper()
	found := map[string]int64{}
	err := filepath.Walk(s.Dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			within, _ := filepath.Rel(s.Dir, path)
			found[within] = info.Size()
		}
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return found
}
