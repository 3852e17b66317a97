package tunnel

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"
)

// pair is a server and one node of name n, whose tunnel stands.
type pair struct {
	hub    *Hub
	server string
	end    func() // of the node
	ended  chan error
}

func allowAll(address string) (string, error) { return address, nil }

func serve(t *testing.T, hub *Hub) *httptest.Server {
	t.Helper()
	who := func(r *http.Request) (string, error) {
		if r.Header.Get("Upgrade") == "" {
			return "", errors.New("you are no node")
		}
		return "n", nil
	}
	refuse := func(w http.ResponseWriter, status int, sentence string) { http.Error(w, sentence, status) }
	s := httptest.NewUnstartedServer(hub.Handler(who, refuse))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func node(s *httptest.Server, allow func(string) (string, error)) Node {
	return Node{Path: "/tunnel", Allow: allow, TLS: func() (*tls.Config, error) {
		c := s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
		c.ServerName = "example.com"
		return c, nil
	}}
}

func connect(t *testing.T, allow func(string) (string, error)) *pair {
	t.Helper()
	p := &pair{hub: &Hub{}, ended: make(chan error, 1)}
	s := serve(t, p.hub)
	p.server = s.Listener.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	p.end = cancel
	up := make(chan struct{})
	go func() { p.ended <- node(s, allow).Connect(ctx, p.server, func() { close(up) }) }()
	t.Cleanup(func() {
		cancel()
		<-p.ended
		p.hub.Close()
	})
	select {
	case <-up:
	case err := <-p.ended:
		p.ended <- err
		t.Fatal(err)
	}
	await(t, "a session", func() bool { return p.hub.Nodes() == 1 })
	return p
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("there is never %s", what)
		}
	}
}

// listen serves each connection with a function and returns the address.
func listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	return l.Addr().String()
}

func echo(c net.Conn) {
	defer c.Close()
	_, _ = io.Copy(c, c)
}

func TestEcho(t *testing.T) {
	p := connect(t, allowAll)
	conn, err := p.hub.Dial(t.Context(), "n", listen(t, echo))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "hello"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != "hello" {
		t.Errorf("%q %v", got, err)
	}
}

// TestDisconnect: the tunnel of a removed node ends, with its open streams.
func TestDisconnect(t *testing.T) {
	p := connect(t, allowAll)
	conn, err := p.hub.Dial(t.Context(), "n", listen(t, echo))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	p.hub.Disconnect("another")
	if _, err := io.WriteString(conn, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	p.hub.Disconnect("n")
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the stream goes on")
	}
	err = <-p.ended
	p.ended <- err
	await(t, "no session", func() bool { return p.hub.Nodes() == 0 })
}

// TestMuch: much data arrives whole while another stream, which nobody reads, is full.
func TestMuch(t *testing.T) {
	p := connect(t, allowAll)
	data := bytes.Repeat([]byte("0123456789abcdef"), 4<<20) // 64 MiB
	source := listen(t, func(c net.Conn) {
		defer c.Close()
		_, _ = c.Write(data)
	})
	full, err := p.hub.Dial(t.Context(), "n", source)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	conn, err := p.hub.Dial(t.Context(), "n", source)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, conn); err != nil {
		t.Fatal(err)
	}
	if want := sha256.Sum256(data); !bytes.Equal(hash.Sum(nil), want[:]) {
		t.Error("it arrives damaged")
	}
}

func TestRefusals(t *testing.T) {
	closed := listen(t, echo)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	l.Close()
	p := connect(t, func(address string) (string, error) {
		if address == closed {
			return "", errors.New("this is not for servers")
		}
		return address, nil
	})
	for name, c := range map[string]struct{ node, address, want string }{
		"not allowed":    {"n", closed, "this is not for servers"},
		"nobody listens": {"n", nobody, "connection refused"},
		"no such node":   {"m", nobody, "no tunnel"},
		"no address":     {"n", "a\nb", "is not an address"},
		"a long one":     {"n", strings.Repeat("a", 2*maxAddress), "is not an address"},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := p.hub.Dial(t.Context(), c.node, c.address)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if conn != nil {
				t.Error("and a connection")
			}
		})
	}
}

// TestCloses: the end of either side reaches the other, and who reads notices.
func TestCloses(t *testing.T) {
	p := connect(t, allowAll)
	gone := make(chan struct{})
	address := listen(t, func(c net.Conn) {
		_, _ = io.Copy(io.Discard, c)
		c.Close()
		close(gone)
	})
	conn, err := p.hub.Dial(t.Context(), "n", address)
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan error, 1)
	go func() {
		_, err := conn.Read(make([]byte, 1))
		read <- err
	}()
	time.Sleep(20 * time.Millisecond)
	conn.Close()
	select {
	case <-gone:
	case <-time.After(time.Minute):
		t.Fatal("the target is not told")
	}
	select {
	case err := <-read:
		if err == nil {
			t.Error("read something")
		}
	case <-time.After(time.Minute):
		t.Fatal("a reader is left behind")
	}

	conn, err = p.hub.Dial(t.Context(), "n", listen(t, func(c net.Conn) { fmt.Fprint(c, "bye"); c.Close() }))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got, err := io.ReadAll(conn); err != nil || string(got) != "bye" {
		t.Errorf("%q %v", got, err)
	}
}

func TestNodeLeavesAndComesBack(t *testing.T) {
	p := connect(t, allowAll)
	conn, err := p.hub.Dial(t.Context(), "n", listen(t, echo))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	p.end()
	err = <-p.ended
	p.ended <- err
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("a stream outlives its tunnel")
	}
	await(t, "no session", func() bool { return p.hub.Nodes() == 0 })
	if _, err := p.hub.Dial(t.Context(), "n", "127.0.0.1:1"); !errors.Is(err, ErrNoTunnel) {
		t.Error(err)
	}
}

func TestNotANode(t *testing.T) {
	s := serve(t, &Hub{})
	for name, c := range map[string]struct {
		header string
		http2  bool
		status int
	}{
		"forbidden":     {"", true, http.StatusForbidden},
		"wrong upgrade": {"websocket", false, http.StatusUpgradeRequired},
	} {
		t.Run(name, func(t *testing.T) {
			client := s.Client()
			if !c.http2 {
				transport := client.Transport.(*http.Transport).Clone()
				transport.TLSClientConfig.NextProtos, transport.ForceAttemptHTTP2 = []string{"http/1.1"}, false
				client = &http.Client{Transport: transport}
			}
			r, err := http.NewRequest(http.MethodGet, s.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			if c.header != "" {
				r.Header.Set("Upgrade", c.header)
			}
			response, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			if response.StatusCode != c.status {
				t.Errorf("%s", response.Status)
			}
		})
	}
	refusing := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "the server is starting", http.StatusServiceUnavailable)
	}))
	defer refusing.Close()
	err := node(refusing, allowAll).Connect(t.Context(), refusing.Listener.Addr().String(), func() { t.Error("it is up") })
	if err == nil || !strings.Contains(err.Error(), "it answers 503 Service Unavailable: the server is starting") {
		t.Error(err)
	}
}

func TestNothingIsLeft(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Run("many", func(t *testing.T) {
		p := connect(t, allowAll)
		address := listen(t, echo)
		for range 50 {
			conn, err := p.hub.Dial(t.Context(), "n", address)
			if err != nil {
				t.Fatal(err)
			}
			conn.Close()
		}
	})
	http.DefaultClient.CloseIdleConnections()
	await(t, "an end of all goroutines", func() bool { return runtime.NumGoroutine() <= before+1 })
}

// TestSurplusConnection: of too many connections of a node the oldest is dropped.
func TestSurplusConnection(t *testing.T) {
	t.Parallel()
	h := &Hub{}
	for range maxSessions + 1 {
		near, far := net.Pipe()
		defer far.Close()
		if err := h.Serve("n", near); err != nil {
			t.Fatal(err)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(h.nodes["n"].sessions); n != maxSessions {
		t.Errorf("%d connections are kept, not %d", n, maxSessions)
	}
}

// TestNewestConnection: a node that reconnects is reached by its new connection; the server may not know yet that the former
// one is dead.
func TestNewestConnection(t *testing.T) {
	t.Parallel()
	h := &Hub{}
	former := h.session("n")
	for range 2 {
		near, far := net.Pipe()
		defer far.Close()
		if err := h.Serve("n", near); err != nil {
			t.Fatal(err)
		}
		if now := h.session("n"); now == former {
			t.Error("the former connection is used")
		} else {
			former = now
		}
	}
}
