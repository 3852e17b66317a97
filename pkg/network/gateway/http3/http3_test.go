package http3

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	upstream "github.com/quic-go/quic-go/http3"
)

// sockets are those of this test, in which a port is any.
type sockets struct {
	opened  net.PacketConn
	proxied string
}

func (s *sockets) ListenPacket(network, address string) (c net.PacketConn, err error) {
	s.opened, err = net.ListenPacket(network, "127.0.0.1"+address)
	return s.opened, err
}

func (s *sockets) Proxied(at net.Addr) bool {
	return s.proxied != "" && at.(*net.UDPAddr).IP.String() == s.proxied
}
func (s *sockets) Secret() [32]byte { return [32]byte{1} }

// site is one whose requests are answered by a handler.
func site(t *testing.T, answer http.HandlerFunc) Site {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1)}, &x509.Certificate{}, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	return Site{TLS: &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return config, nil }}, Handler: &handling{answer}}
}

// serve serves a site, and returns its address.
func serve(t *testing.T, one Site, from *sockets) (*Server, *net.UDPAddr) {
	t.Helper()
	s := New(from, time.Minute)
	s.Apply([]Site{one})
	if from.opened != nil {
		t.Fatal("a port is open before the server begins")
	}
	s.Begin()
	t.Cleanup(func() { s.Close(0) })
	return s, from.opened.LocalAddr().(*net.UDPAddr)
}

// client is a client at an address.
type client struct {
	transport *quic.Transport
	quic      *quic.Config
	tls       *tls.Config
}

func clientAt(t *testing.T, address string, wrap func(net.PacketConn) net.PacketConn) *client {
	t.Helper()
	conn, err := net.ListenPacket("udp", address+":0")
	if err != nil {
		t.Fatal(err)
	}
	c := &client{&quic.Transport{Conn: wrap(conn)}, &quic.Config{}, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{upstream.NextProtoH3}, ClientSessionCache: tls.NewLRUClientSessionCache(1)}}
	t.Cleanup(func() {
		c.transport.Close()
		conn.Close()
	})
	return c
}

func asIs(c net.PacketConn) net.PacketConn { return c }

func (c *client) dial(ctx context.Context, to net.Addr) (*quic.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return c.transport.Dial(ctx, to, c.tls, c.quic)
}

// get sends a request on a new connection.
func (c *client) get(t *testing.T, to net.Addr, method, body string) string {
	t.Helper()
	way := &upstream.Transport{TLSClientConfig: c.tls, Dial: func(ctx context.Context, _ string, _ *tls.Config, _ *quic.Config) (*quic.Conn, error) {
		return c.dial(ctx, to)
	}}
	defer way.Close()
	return send(t, way, method, body)
}

func send(t *testing.T, way http.RoundTripper, method, body string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, "https://a.test/", io.MultiReader(strings.NewReader(body))) // of no known length
	if err != nil {
		t.Fatal(err)
	}
	if body == "" {
		request.Body = nil
	}
	answer, err := way.RoundTrip(request)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	return string(text)
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for until := time.Now().Add(10 * time.Second); !holds(); {
		if time.Now().After(until) {
			t.Fatalf("it never came: %s", what)
		}
		<-time.After(time.Millisecond)
	}
}

// handling is a handler that can be compared.
type handling struct{ http.Handler }

// TestBodies: a request without a body has none for the handler either, as in other versions of HTTP.
func TestBodies(t *testing.T) {
	_, at := serve(t, site(t, func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %t %d %s", r.Method, r.Body == http.NoBody, r.ContentLength, text)
	}), &sockets{})
	c := clientAt(t, "127.0.0.1", asIs)
	for _, x := range []struct{ method, body, want string }{
		{"GET", "", "GET true 0 "}, {"DELETE", "", "DELETE true 0 "}, {"DELETE", "hello", "DELETE false -1 hello"}, {"POST", "hello", "POST false -1 hello"},
	} {
		if got := c.get(t, at, x.method, x.body); got != x.want {
			t.Errorf("%q, want %q", got, x.want)
		}
	}
}

// TestClients: one client has so many connections and no more, and a balancer, which hides who its clients are, none.
func TestClients(t *testing.T) {
	s, at := serve(t, site(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }), &sockets{proxied: "127.0.0.9"})
	c := clientAt(t, "127.0.0.1", asIs)
	var open []*quic.Conn
	for range maxOfClient {
		conn, err := c.dial(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, conn)
	}
	refused := func(c *client) bool {
		begin := time.Now()
		conn, err := c.dial(t.Context(), at)
		if err == nil {
			_ = conn.CloseWithError(0, "")
			return false
		}
		var why *quic.TransportError
		if !errors.As(err, &why) || why.ErrorCode != quic.ConnectionRefused || time.Since(begin) > 5*time.Second {
			t.Errorf("after %s: %v", time.Since(begin), err)
		}
		return true
	}
	if !refused(c) || !refused(clientAt(t, "127.0.0.1", asIs)) {
		t.Error("a client has more connections than it may")
	}
	if refused(clientAt(t, "127.0.0.2", asIs)) {
		t.Error("a client is in another one's way")
	}
	if !refused(clientAt(t, "127.0.0.9", asIs)) {
		t.Error("a balancer is a client")
	}
	_ = open[0].CloseWithError(0, "")
	eventually(t, "room for another connection", func() bool { return !refused(c) })
	for _, conn := range open {
		_ = conn.CloseWithError(0, "")
	}
	eventually(t, "nothing is counted any more", func() bool {
		s.clients.mu.Lock()
		defer s.clients.mu.Unlock()
		return s.clients.open == 0 && s.clients.handshakes == 0 && len(s.clients.of) == 0
	})
}

// deaf gets no answers.
type deaf struct{ net.PacketConn }

func (d deaf) ReadFrom(p []byte) (int, net.Addr, error) {
	for {
		if _, from, err := d.PacketConn.ReadFrom(p); err != nil {
			return 0, from, err
		}
	}
}

// watching looks at the packets that come.
type watching struct {
	net.PacketConn
	retries *atomic.Int32
}

func (w watching) ReadFrom(p []byte) (int, net.Addr, error) {
	n, from, err := w.PacketConn.ReadFrom(p)
	if n > 0 && p[0]&0xf0 == 0xf0 { // a packet with a long header, of type Retry (RFC 9000, section 17.2.5)
		w.retries.Add(1)
	}
	return n, from, err
}

// TestRetry: when many handshakes are not done, as when clients only seem to be at their addresses, others have to show that they are at theirs.
func TestRetry(t *testing.T) {
	s, at := serve(t, site(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }), &sockets{})
	var retries atomic.Int32
	c := clientAt(t, "127.0.0.1", func(c net.PacketConn) net.PacketConn { return watching{c, &retries} })
	if got := c.get(t, at, "GET", ""); got != "hello" || retries.Load() != 0 {
		t.Errorf("%q, %d retries at rest", got, retries.Load())
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for n := range maxHandshakes {
		d := clientAt(t, netip.AddrFrom4([4]byte{127, 0, 1, byte(1 + n/maxOfClient)}).String(), func(c net.PacketConn) net.PacketConn { return deaf{c} })
		go func() { _, _ = d.dial(ctx, at) }()
	}
	eventually(t, "the handshakes", s.clients.busy)
	c.tls.ClientSessionCache = nil
	fresh := clientAt(t, "127.0.0.1", func(c net.PacketConn) net.PacketConn { return watching{c, &retries} })
	if got := fresh.get(t, at, "GET", ""); got != "hello" || retries.Load() == 0 {
		t.Errorf("%q, %d retries under load", got, retries.Load())
	}
}

// TestEarlyData: what is sent before the handshake is done, which others could send again, is not taken.
func TestEarlyData(t *testing.T) {
	_, at := serve(t, site(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }), &sockets{})
	c := clientAt(t, "127.0.0.1", asIs)
	for range 2 { // the second one resumes the first one's session
		conn, err := c.transport.DialEarly(t.Context(), at, c.tls, c.quic)
		if err != nil {
			t.Fatal(err)
		}
		way := &upstream.Transport{Dial: func(context.Context, string, *tls.Config, *quic.Config) (*quic.Conn, error) { return conn, nil }}
		if got := send(t, way, "GET", ""); got != "hello" {
			t.Error(got)
		}
		if conn.ConnectionState().Used0RTT {
			t.Error("data was taken before the handshake")
		}
		way.Close()
	}
}

// TestChange: a change of the site lets requests end, and new ones come to the new one. At its end clients are told.
func TestChange(t *testing.T) {
	came, go1 := make(chan struct{}), make(chan struct{})
	first := site(t, func(w http.ResponseWriter, _ *http.Request) {
		close(came)
		<-go1
		fmt.Fprint(w, "first")
	})
	s, at := serve(t, first, &sockets{})
	c := clientAt(t, "127.0.0.1", asIs)
	got := make(chan string, 1)
	go func() { got <- c.get(t, at, "GET", "") }()
	<-came
	second := site(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "second") })
	s.Apply([]Site{second})
	if text := c.get(t, at, "GET", ""); text != "second" {
		t.Errorf("after a change: %q", text)
	}
	close(go1)
	if text := <-got; text != "first" {
		t.Errorf("over a change: %q", text)
	}
	if !s.Serves(0) {
		t.Error("the port is not served")
	}
	conn, err := c.dial(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	way := &upstream.Transport{Dial: func(context.Context, string, *tls.Config, *quic.Config) (*quic.Conn, error) { return conn, nil }}
	defer way.Close()
	if text := send(t, way, "GET", ""); text != "second" {
		t.Error(text)
	}
	idle, err := c.dial(t.Context(), at) // which does not know what the server says, but when it is closed
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	s.Apply(nil)
	for _, conn := range []*quic.Conn{conn, idle} {
		<-conn.Context().Done()
		var silent *quic.IdleTimeoutError
		if err := context.Cause(conn.Context()); errors.As(err, &silent) || time.Since(begin) > 5*time.Second {
			t.Errorf("after %s: %v", time.Since(begin), err)
		}
	}
	if s.Serves(0) {
		t.Error("the port is served")
	}
}

// TestTaken: a port of another program is not served, until it is free.
func TestTaken(t *testing.T) {
	other, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	one := site(t, func(http.ResponseWriter, *http.Request) {})
	one.Port = netip.MustParseAddrPort(other.LocalAddr().String()).Port()
	s := New(&sockets{}, time.Minute)
	defer s.Close(0)
	s.Begin()
	s.Apply([]Site{one})
	if s.Serves(one.Port) {
		t.Error("it is served")
	}
	other.Close()
	s.Retry()
	if !s.Serves(one.Port) {
		t.Error("it is not served when it is free")
	}
}

// TestSiteChangesDuringHandshake: a connection whose handshake was answered for the site before, which may have wanted other client certificates, serves no request.
func TestSiteChangesDuringHandshake(t *testing.T) {
	var old, served atomic.Int32
	count := func(n *atomic.Int32) http.HandlerFunc {
		return func(http.ResponseWriter, *http.Request) { n.Add(1) }
	}
	before, after := site(t, count(&old)), site(t, count(&served))
	s, address := serve(t, before, &sockets{})
	c := clientAt(t, "127.0.0.1", asIs)
	c.tls.VerifyConnection = func(tls.ConnectionState) error { // the client has still to answer
		s.Apply([]Site{after})
		return nil
	}
	if got := c.get(t, address, http.MethodGet, ""); old.Load() > 0 { // it comes again by itself if it hears in time that the connection ends
		t.Errorf("a request was served: %q", got)
	}
	c.tls.VerifyConnection = nil
	n := served.Load()
	if got := c.get(t, address, http.MethodGet, ""); served.Load() != n+1 || old.Load() > 0 {
		t.Errorf("a client that comes again is not served: %q", got)
	}
}
