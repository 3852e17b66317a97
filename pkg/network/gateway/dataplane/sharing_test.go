package dataplane

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
	"github.com/coracle-dev/coracle/test/freeport"
)

// testStreams: streams have ports of their own, take their connections on those of HTTPS, and go on when Caddy loads its configuration, and when it
// cannot load it.
func testStreams(t *testing.T, s *served, config gateway.Config, secure uint16) {
	behind := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "behind "+r.TLS.ServerName) }))
	t.Cleanup(behind.Close)
	plain := freeport.Port(t)
	config.Listeners = append(config.Listeners,
		gateway.Listener{Name: "pass", Port: secure, Protocol: gateway.Passthrough, Host: "pass.test"},
		gateway.Listener{Name: "tcp", Port: plain, Protocol: gateway.TCP})
	config.Streams = []gateway.Stream{
		{Listeners: []string{"pass"}, Backends: []gateway.Backend{{Endpoints: "behind", Weight: 1}}},
		{Listeners: []string{"tcp"}, Backends: []gateway.Backend{{Endpoints: "echo", Weight: 1}}},
	}
	endpoints := gateway.Endpoints{"a": {backend(t, "one")}, "behind": {behind.Listener.Addr().String()}, "echo": {streamEcho(t)}}
	if applied := s.apply(t, config, endpoints); len(applied.Refused) != 0 {
		t.Fatal(applied.Refused)
	}
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", plain))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	lines := bufio.NewReader(conn)
	check := func() {
		t.Helper()
		for host, want := range map[string]string{"pass.test": "behind pass.test", "a.test": "one /"} {
			if got := secureGet(t, fmt.Sprintf("127.0.0.1:%d", secure), host); got != want {
				t.Errorf("%s: %q, want %q", host, got, want)
			}
		}
		fmt.Fprintln(conn, "hello")
		if got, err := lines.ReadString('\n'); err != nil || got != "hello\n" {
			t.Errorf("%q, %v", got, err)
		}
	}
	check()
	config.Certificates = []gateway.Certificate{certificate(t, "Secret a/a", "a.test")} // Caddy loads its configuration
	s.apply(t, config, endpoints)
	check()
	at := len(config.Listeners) - 1
	conn.Close()
	config.Listeners[at].Protocol = gateway.HTTP // the port goes to Caddy
	config.Listeners[at].Name = "plain"
	if applied := s.apply(t, config, endpoints); len(applied.Refused) != 0 {
		t.Errorf("%v", applied.Refused)
	}
	s.get(t, plain, "a.test", "/", 200, "one /")
	config.Listeners[at].Protocol, config.Listeners[at].Name = gateway.TCP, "tcp" // and back
	if applied := s.apply(t, config, endpoints); len(applied.Refused) != 0 {
		t.Errorf("%v", applied.Refused)
	}
	if conn, err = net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", plain)); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	lines = bufio.NewReader(conn)
	check()
	fine, further := s.fallback, freeport.Port(t)
	broken := config
	broken.Listeners = append(config.Listeners[:at:at], config.Listeners[at], gateway.Listener{Name: "further", Port: further, Protocol: gateway.TCP})
	broken.Streams = append(config.Streams[:2:2], gateway.Stream{Listeners: []string{"further"}, Backends: config.Streams[1].Backends})
	s.fallback.Chain = "garbage"
	if _, err := s.writer.Write(broken, endpoints); err != nil {
		t.Fatal(err)
	}
	if _, err := s.serving.apply(); err == nil {
		t.Error("Caddy loads garbage")
	}
	s.fallback = fine
	check()
	conn.Close()
	if conn, err = net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", further)); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	lines = bufio.NewReader(conn)
	check()
	conn.Close()
	config.Listeners = config.Listeners[:at-1]
	s.apply(t, config, endpoints)
	if _, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", plain)); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("the port of a listener that is gone: %v", err)
	}
}

// streamEcho answers with what it is told.
func streamEcho(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	return l.Addr().String()
}
