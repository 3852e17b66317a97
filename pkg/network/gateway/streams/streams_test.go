package streams

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
	"github.com/coracle-dev/coracle/pkg/network/gateway/routes"
	"github.com/coracle-dev/coracle/test/freeport"
)

func TestTCP(t *testing.T) {
	f := start(t)
	number := freeport.Port(t)
	f.config.Listeners = []gateway.Listener{{Name: "l", Port: number, Protocol: gateway.TCP}}
	f.config.Streams = []gateway.Stream{{Listeners: []string{"l"}, Backends: []gateway.Backend{
		{Endpoints: "a", Weight: 7}, {Endpoints: "b", Weight: 3}, {Endpoints: "c", Weight: 0},
	}}}
	f.endpoints = gateway.Endpoints{"a": {echo(t, "a")}, "b": {fmt.Sprintf("127.0.0.1:%d", freeport.Port(t)), echo(t, "b")}, "c": {echo(t, "c")}}
	f.apply(t)
	counts := map[string]int{}
	for range 100 { // one of b's endpoints does not accept
		counts[ask(t, dial(t, "127.0.0.1", number))]++
	}
	if counts["a"] < 65 || counts["a"] > 75 || counts["b"] != 100-counts["a"] {
		t.Errorf("backends of weights 7, 3, 0 have got %v", counts)
	}

	t.Run("half-close", func(t *testing.T) {
		conn := dial(t, "::1", number).(*net.TCPConn)
		sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
		go func() {
			_, _ = conn.Write(sent)
			_ = conn.CloseWrite()
		}()
		got, err := io.ReadAll(conn)
		if _, echoed, _ := bytes.Cut(got, []byte("\n")); err != nil || !bytes.Equal(echoed, sent) {
			t.Errorf("%d bytes of %d, %v", len(echoed), len(sent), err)
		}
	})
	t.Run("a connection outlives other endpoints and routes, not its listener", func(t *testing.T) {
		conn := dial(t, "127.0.0.1", number)
		lines := bufio.NewReader(conn)
		expect(t, lines, "")
		f.endpoints = gateway.Endpoints{"b": {echo(t, "b")}}
		f.server.Use(routes.New(f.config, f.endpoints, nil))
		f.config.Streams[0].Backends = []gateway.Backend{{Endpoints: "b", Weight: 1}}
		f.apply(t)
		fmt.Fprintln(conn, "still here")
		expect(t, lines, "still here\n")
		if got := ask(t, dial(t, "127.0.0.1", number)); got != "b" {
			t.Errorf("a new connection is served by %q", got)
		}
		listeners := f.config.Listeners
		f.config.Listeners = nil
		f.apply(t)
		if _, err := lines.ReadByte(); !closed(err) {
			t.Errorf("the connection of a listener that is gone: %v", err)
		}
		if _, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", number)); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("its port: %v", err)
		}
		f.config.Listeners = listeners
		f.apply(t)
	})
	t.Run("without an endpoint it is closed", func(t *testing.T) {
		f.config.Streams[0].Backends = []gateway.Backend{{Endpoints: "none", Weight: 1}}
		f.apply(t)
		isClosed(t, dial(t, "127.0.0.1", number))
	})
	t.Run("an endpoint that is the gateway", func(t *testing.T) {
		f.config.Streams[0].Backends = []gateway.Backend{{Endpoints: "self", Weight: 1}}
		f.endpoints = gateway.Endpoints{"self": {fmt.Sprintf("127.0.0.1:%d", number)}}
		f.apply(t)
		isClosed(t, dial(t, "127.0.0.1", number))
	})
	t.Run("of listeners with addresses each has its own", func(t *testing.T) {
		f.config.Listeners = append(f.config.Listeners, gateway.Listener{Name: "own", Addresses: []string{"127.0.0.2"}, Port: number, Protocol: gateway.TCP})
		f.config.Streams = []gateway.Stream{to("l", "b"), to("own", "a")}
		f.endpoints = gateway.Endpoints{"a": {echo(t, "a")}, "b": {echo(t, "b")}}
		f.apply(t)
		for address, want := range map[string]string{"127.0.0.1": "b", "127.0.0.2": "a", "127.0.0.3": "b"} {
			if got := ask(t, dial(t, address, number)); got != want {
				t.Errorf("%s is served by %q, want %q", address, got, want)
			}
		}
	})
	t.Run("a port of another program", func(t *testing.T) {
		taken, err := net.Listen("tcp", ":0")
		if err != nil {
			t.Fatal(err)
		}
		defer taken.Close()
		other := uint16(taken.Addr().(*net.TCPAddr).Port)
		f.config.Listeners = append(f.config.Listeners, gateway.Listener{Name: "taken", Port: other, Protocol: gateway.TCP})
		if refused := f.apply(t); !strings.Contains(refused[other], "in use") || len(refused) != 1 {
			t.Errorf("%v", refused)
		}
	})
}

func TestIdle(t *testing.T) {
	f := start(t)
	f.server.idle = 50 * time.Millisecond
	number := freeport.Port(t)
	f.config.Listeners = []gateway.Listener{{Name: "l", Port: number, Protocol: gateway.TCP}}
	f.config.Streams = []gateway.Stream{to("l", "a")}
	f.endpoints = gateway.Endpoints{"a": {echo(t, "a")}}
	f.apply(t)
	conn := dial(t, "127.0.0.1", number)
	expect(t, bufio.NewReader(conn), "a\n")
	isClosed(t, conn)
}

func TestTLS(t *testing.T) {
	f := start(t)
	number := freeport.Port(t)
	own, behind, wild := certificate(t, "Secret a/own", "tls.test"), certificate(t, "Secret b/behind", "x.pass.test"), certificate(t, "Secret a/wild", "*.tls.test")
	f.config = gateway.Config{
		Certificates: []gateway.Certificate{own, wild},
		Listeners: []gateway.Listener{
			{Name: "ended", Port: number, Protocol: gateway.TLS, Host: "tls.test", Certificates: map[string][]string{"": {"Secret a/gone", "Secret a/own"}}},
			{Name: "wild", Port: number, Protocol: gateway.TLS, Host: "*.tls.test", Certificates: map[string][]string{"": {"Secret a/own"}, "*.tls.test": {"Secret a/wild"}}},
			{Name: "pass", Port: number, Protocol: gateway.Passthrough, Host: "*.pass.test"},
		},
		Streams: []gateway.Stream{
			{Listeners: []string{"ended", "wild"}, Backends: []gateway.Backend{{Endpoints: "plain", Weight: 1}}},
			{Listeners: []string{"pass"}, Hosts: []string{"*.pass.test", "*.test"}, Backends: []gateway.Backend{{Endpoints: "secure", Weight: 1}}},
			{Listeners: []string{"pass"}, Hosts: []string{"none.pass.test"}, Backends: []gateway.Backend{{Weight: 1}}},
			{Listeners: []string{"pass"}, Hosts: []string{"y.pass.test"}, Backends: []gateway.Backend{{Endpoints: "plain", Weight: 1}}},
		},
	}
	f.endpoints = gateway.Endpoints{"plain": {echo(t, "plain")}, "secure": {secureEcho(t, "secure", behind)}}
	f.apply(t)
	for _, c := range []struct {
		name    string
		want    string
		trusted gateway.Certificate
	}{
		{"tls.test", "plain", own}, {"TLS.test", "plain", own}, {"x.tls.test", "plain", wild}, {"x.pass.test", "secure", behind},
		{"none.pass.test", "", own}, {"pass.test", "", own}, {"other.test", "", own}, {"", "", own},
	} {
		conn, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", number), trusting(c.name, c.trusted))
		if c.want == "" {
			if !closed(err) {
				t.Errorf("%q: %v, want the connection closed", c.name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", c.name, err)
			continue
		}
		if got := ask(t, conn); got != c.want {
			t.Errorf("%q is served by %q, want %q", c.name, got, c.want)
		}
	}
	t.Run("a hello in pieces", func(t *testing.T) {
		conn := dial(t, "127.0.0.1", number)
		_ = conn.(*net.TCPConn).SetNoDelay(true)
		config := trusting("x.pass.test", behind)
		config.NextProtos = longProtocols()
		secure := tls.Client(&inPieces{conn}, config)
		if got := ask(t, secure); got != "secure" {
			t.Errorf("served by %q", got)
		}
	})
	t.Run("no hello", func(t *testing.T) {
		for _, text := range []string{"GET / HTTP/1.1\r\nHost: x.pass.test\r\n\r\n", "\x16\x03\x01\x00\x00", strings.Repeat("\x16\x03\x01\x40\x00"+strings.Repeat("\x01", 0x4000), 8)} {
			conn := dial(t, "127.0.0.1", number)
			_, _ = io.WriteString(conn, text)
			isClosed(t, conn)
		}
	})
	t.Run("clients' certificates", func(t *testing.T) {
		f.config.Listeners[0].ClientAuthorities = wild.Chain
		f.apply(t)
		config := trusting("tls.test", own)
		conn, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", number), config)
		if err == nil {
			_, err = conn.Read(make([]byte, 1))
		}
		if err == nil || !strings.Contains(err.Error(), "certificate required") {
			t.Errorf("without one: %v", err)
		}
		config.Certificates = []tls.Certificate{pair(t, wild)}
		if conn, err = tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", number), config); err != nil {
			t.Fatal(err)
		}
		if got := ask(t, conn); got != "plain" {
			t.Errorf("with one: %q", got)
		}
	})
	t.Run("half-close", func(t *testing.T) {
		conn, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", number), trusting("x.tls.test", wild))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<14)
		go func() {
			_, _ = conn.Write(sent)
			_ = conn.CloseWrite()
		}()
		got, err := io.ReadAll(conn)
		if _, echoed, _ := bytes.Cut(got, []byte("\n")); err != nil || !bytes.Equal(echoed, sent) {
			t.Errorf("%d bytes of %d, %v", len(echoed), len(sent), err)
		}
	})
}

// TestShared: on a port of a server for HTTPS, streams take their connections, whichever of its listeners accepts.
func TestShared(t *testing.T) {
	f := start(t)
	own, behind := certificate(t, "Secret a/own", "web.test"), certificate(t, "Secret b/behind", "pass.test")
	first, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	number := uint16(first.Addr().(*net.TCPAddr).Port)
	f.config.Listeners = []gateway.Listener{{Name: "web", Port: number, Protocol: gateway.HTTPS}}
	f.web = map[uint16]bool{number: true}
	f.endpoints = gateway.Endpoints{"secure": {secureEcho(t, "secure", behind)}}
	f.apply(t)
	web := func(l net.Listener) net.Listener {
		l = tls.NewListener(f.server.Share(l, true), &tls.Config{Certificates: []tls.Certificate{pair(t, own)}})
		t.Cleanup(func() { l.Close() })
		go serveEcho(l, "web")
		return l
	}
	accepting := web(first)
	check := func(name, want string, trusted gateway.Certificate) {
		t.Helper()
		conn, err := tls.Dial("tcp", first.Addr().String(), trusting(name, trusted))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := ask(t, conn); got != want {
			t.Errorf("%s is served by %q, want %q", name, got, want)
		}
	}
	check("web.test", "web", own)
	f.config.Listeners = append(f.config.Listeners, gateway.Listener{Name: "pass", Port: number, Protocol: gateway.Passthrough, Host: "pass.test"})
	f.config.Streams = []gateway.Stream{to("pass", "secure")}
	f.apply(t)
	check("web.test", "web", own)
	check("pass.test", "secure", behind)
	if f.server.ports[number] != nil {
		t.Error("the port of the other server is opened twice")
	}

	slow := dial(t, "127.0.0.1", number) // names its host when another listener accepts, as after a change of certificates
	hello := &held{Conn: slow, until: make(chan struct{})}
	done := make(chan string)
	go func() { done <- ask(t, tls.Client(hello, trusting("web.test", own))) }()
	file, err := first.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	second, err := net.FileListener(file)
	if err != nil {
		t.Fatal(err)
	}
	web(second)
	check("web.test", "web", own) // after slow in the queue of the socket, so that is accepted too
	accepting.Close()
	close(hello.until)
	if got := <-done; got != "web" {
		t.Errorf("a connection that was accepted before is served by %q", got)
	}
	check("pass.test", "secure", behind)
}
