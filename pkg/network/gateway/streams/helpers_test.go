package streams

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
	"github.com/coracle-dev/coracle/pkg/network/gateway/listening"
	"github.com/coracle-dev/coracle/pkg/network/gateway/routes"
)

// patience is how long a test waits for what must happen.
const patience = 10 * time.Second

// forwarder is a server with its configuration.
type forwarder struct {
	server    *Server
	config    gateway.Config
	endpoints gateway.Endpoints
	web       map[uint16]bool
}

func start(t *testing.T) *forwarder {
	t.Helper()
	f := &forwarder{server: New(listening.New())}
	t.Cleanup(func() { _ = f.server.Close() })
	return f
}

func (f *forwarder) apply(t *testing.T) map[uint16]string {
	t.Helper()
	var config gateway.Config // of its own, as the process reads it from a file
	data, err := json.Marshal(f.config)
	if err == nil {
		err = json.Unmarshal(data, &config)
	}
	if err != nil {
		t.Fatal(err)
	}
	return f.server.Apply(config, routes.New(config, f.endpoints, nil), f.web)
}

func to(listener, backend string) gateway.Stream {
	return gateway.Stream{Listeners: []string{listener}, Backends: []gateway.Backend{{Endpoints: backend, Weight: 1}}}
}

// echo runs a server that says its name in a line, and then what it is told.
func echo(t *testing.T, name string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go serveEcho(l, name)
	return l.Addr().String()
}

func secureEcho(t *testing.T, name string, of gateway.Certificate) string {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair(t, of)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go serveEcho(l, name)
	return l.Addr().String()
}

func serveEcho(l net.Listener, name string) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			fmt.Fprintln(conn, name)
			_, _ = io.Copy(conn, conn)
		}()
	}
}

func dial(t *testing.T, host string, number uint16) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", netip.AddrPortFrom(netip.MustParseAddr(host), number).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	return conn
}

// ask returns the name of who serves a connection, which it closes.
func ask(t *testing.T, conn net.Conn) string {
	t.Helper()
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	fmt.Fprintln(conn, "hello")
	lines := bufio.NewReader(conn)
	name, err := lines.ReadString('\n')
	if err != nil {
		t.Errorf("reading the name: %v", err)
	}
	expect(t, lines, "hello\n")
	return strings.TrimSpace(name)
}

// expect reads a line; empty means any.
func expect(t *testing.T, lines *bufio.Reader, want string) {
	t.Helper()
	if got, err := lines.ReadString('\n'); err != nil || want != "" && got != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}

func isClosed(t *testing.T, conn net.Conn) {
	t.Helper()
	if n, err := conn.Read(make([]byte, 1)); !closed(err) {
		t.Errorf("%d bytes, %v; want the connection closed", n, err)
	}
}

// closed says whether an error is what a closed connection gives, and not a timeout or a message of TLS.
func closed(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) }

func certificate(t *testing.T, source, name string) gateway.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return gateway.Certificate{
		Source: source,
		Chain:  string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		Key:    string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})),
	}
}

func pair(t *testing.T, of gateway.Certificate) tls.Certificate {
	t.Helper()
	out, err := tls.X509KeyPair([]byte(of.Chain), []byte(of.Key))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// trusting returns the settings of a client that names a host and trusts a certificate.
func trusting(name string, of gateway.Certificate) *tls.Config {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(of.Chain))
	return &tls.Config{ServerName: name, RootCAs: roots, InsecureSkipVerify: name == ""}
}

// longProtocols make a hello longer than a segment.
func longProtocols() (out []string) {
	for i := range 40 {
		out = append(out, fmt.Sprintf("%0200d", i))
	}
	return out
}

// inPieces writes in small segments.
type inPieces struct{ net.Conn }

func (p *inPieces) Write(b []byte) (n int, err error) {
	for len(b) > 0 && err == nil {
		var one int
		one, err = p.Conn.Write(b[:min(len(b), 100)])
		n, b = n+one, b[one:]
	}
	return n, err
}

// held writes when it may.
type held struct {
	net.Conn
	until chan struct{}
}

func (h *held) Write(b []byte) (int, error) {
	<-h.until
	return h.Conn.Write(b)
}
