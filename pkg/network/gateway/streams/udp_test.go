package streams

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
	"github.com/coracle-dev/coracle/pkg/network/gateway/routes"
	"github.com/coracle-dev/coracle/test/freeport"
)

func TestUDP(t *testing.T) {
	f := start(t)
	number := freeport.Port(t)
	f.config.Listeners = []gateway.Listener{{Name: "l", Port: number, Protocol: gateway.UDP}, {Name: "tcp", Port: number, Protocol: gateway.TCP}}
	f.config.Streams = []gateway.Stream{
		{Listeners: []string{"l"}, Backends: []gateway.Backend{{Endpoints: "a", Weight: 7}, {Endpoints: "b", Weight: 3}, {Endpoints: "c", Weight: 0}}},
		to("tcp", "tcp"),
	}
	f.endpoints = gateway.Endpoints{"a": {packetEcho(t, "a")}, "b": {packetEcho(t, "b")}, "c": {packetEcho(t, "c")}, "tcp": {echo(t, "tcp")}}
	if refused := f.apply(t); len(refused) != 0 {
		t.Fatal(refused)
	}
	if got := ask(t, dial(t, "127.0.0.1", number)); got != "tcp" {
		t.Errorf("the port of TCP with the same number is served by %q", got)
	}
	counts := map[string]int{}
	for range 100 {
		counts[askPacket(t, client(t, "127.0.0.1", number))]++
	}
	if counts["a"] < 65 || counts["a"] > 75 || counts["b"] != 100-counts["a"] {
		t.Errorf("backends of weights 7, 3, 0 have got %v", counts)
	}

	t.Run("answers come from the address that was asked", func(t *testing.T) {
		for _, address := range []string{"127.0.0.1", "127.0.0.2", "::1"} {
			conn, err := net.ListenUDP("udp", nil) // takes answers from anywhere
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(patience))
			at := netip.AddrPortFrom(netip.MustParseAddr(address), number)
			if _, err := conn.WriteToUDPAddrPort([]byte("hello"), at); err != nil {
				t.Fatal(err)
			}
			if _, from, err := conn.ReadFromUDPAddrPort(make([]byte, 100)); err != nil || netip.AddrPortFrom(from.Addr().Unmap(), from.Port()) != at {
				t.Errorf("%s: answer from %s, %v", address, from, err)
			}
		}
	})
	t.Run("a client keeps its endpoint until that is gone", func(t *testing.T) {
		conn := client(t, "127.0.0.1", number)
		first := askPacket(t, conn)
		for range 20 {
			if got := askPacket(t, conn); got != first {
				t.Fatalf("%q after %q", got, first)
			}
		}
		other := map[string]string{"a": "b", "b": "a"}[first]
		f.config.Streams[0].Backends = []gateway.Backend{{Endpoints: other, Weight: 1}}
		f.apply(t)
		if got := askPacket(t, conn); got != other {
			t.Errorf("%q, want %q", got, other)
		}
		f.endpoints = gateway.Endpoints{other: {packetEcho(t, "new")}}
		f.server.Use(routes.New(f.config, f.endpoints, nil))
		if got := askPacket(t, conn); got != "new" {
			t.Errorf("%q", got)
		}
	})
	t.Run("an endpoint that refuses is left", func(t *testing.T) {
		f.config.Streams[0].Backends = []gateway.Backend{{Endpoints: "half", Weight: 1}}
		f.endpoints = gateway.Endpoints{"half": {fmt.Sprintf("127.0.0.1:%d", freeport.Port(t)), packetEcho(t, "half")}}
		f.apply(t)
		for range 4 {
			conn := client(t, "127.0.0.1", number)
			deadline := time.Now().Add(patience)
			for answered := false; !answered; { // as clients of UDP do
				if time.Now().After(deadline) {
					t.Fatal("no answer")
				}
				_, answered = tryPacket(t, conn, 100*time.Millisecond)
			}
		}
	})
	t.Run("an endpoint that is the gateway", func(t *testing.T) {
		f.config.Streams[0].Backends = []gateway.Backend{{Endpoints: "self", Weight: 1}}
		f.endpoints = gateway.Endpoints{"self": {fmt.Sprintf("127.0.0.1:%d", number)}}
		f.apply(t)
		before := f.server.sessions.Load()
		f.deliver(t, client(t, "127.0.0.1", number))
		if n := f.server.sessions.Load(); n != before {
			t.Errorf("%d sessions, %d before", n, before)
		}
	})
}

// TestSessionsEnd: with their listener, and when they are idle.
func TestSessionsEnd(t *testing.T) {
	f := start(t)
	f.server.idleUDP = 50 * time.Millisecond
	number := freeport.Port(t)
	f.config.Listeners = []gateway.Listener{{Name: "l", Port: number, Protocol: gateway.UDP}}
	f.config.Streams = []gateway.Stream{to("l", "a")}
	f.endpoints = gateway.Endpoints{"a": {packetEcho(t, "a")}}
	f.apply(t)
	conn := client(t, "127.0.0.1", number)
	askPacket(t, conn)
	eventually(t, "the idle session ends", func() bool { return f.server.sessions.Load() == 0 })
	for range 2 { // with one listener, then with another on the same port
		if got := askPacket(t, conn); got != "a" {
			t.Errorf("%q", got)
		}
		f.config.Listeners[0].Name = "other"
		f.config.Streams[0].Listeners = []string{"other"}
		f.apply(t)
	}
	f.config.Listeners = nil
	f.apply(t)
	if n := f.server.sessions.Load(); n != 0 {
		t.Errorf("%d sessions without a listener", n)
	}
}

// TestSessions: when there are too many, the one that has been unused for longest makes room.
func TestSessions(t *testing.T) {
	f := start(t)
	number := freeport.Port(t)
	f.config.Listeners = []gateway.Listener{{Name: "l", Port: number, Protocol: gateway.UDP}}
	f.config.Streams = []gateway.Stream{to("l", "a")}
	f.endpoints = gateway.Endpoints{"a": {packetEcho(t, "a")}}
	f.apply(t)
	f.server.sessions.Store(maxSessions - 2) // others'
	defer func() { f.server.sessions.Add(2 - maxSessions) }()
	kept, oldest := client(t, "127.0.0.1", number), client(t, "127.0.0.1", number)
	askPacket(t, oldest)
	askPacket(t, kept)
	for range 10 {
		askPacket(t, kept)
		askPacket(t, client(t, "127.0.0.1", number))
	}
	p := f.server.packets[number]
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.sessions) != 2 || f.server.sessions.Load() != maxSessions || p.recent.Len() != 2 {
		t.Errorf("%d sessions", len(p.sessions))
	}
	found := false
	for e := range p.sessions {
		found = found || e.client.Port() == addressOf(kept.LocalAddr()).Port()
	}
	if !found {
		t.Error("the session that is used made room")
	}
}

// packetEcho runs a server that answers with its name and what it is told.
func packetEcho(t *testing.T, name string) string {
	t.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		buf := make([]byte, maxDatagram)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			_, _ = conn.WriteToUDPAddrPort(fmt.Appendf(nil, "%s %s", name, buf[:n]), from)
		}
	}()
	return conn.LocalAddr().String()
}

func client(t *testing.T, host string, number uint16) net.Conn {
	t.Helper()
	conn, err := net.Dial("udp", netip.AddrPortFrom(netip.MustParseAddr(host), number).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// askPacket returns the name of who answers.
func askPacket(t *testing.T, conn net.Conn) string {
	t.Helper()
	name, ok := tryPacket(t, conn, patience)
	if !ok {
		t.Fatal("no answer")
	}
	return name
}

func tryPacket(t *testing.T, conn net.Conn, within time.Duration) (name string, ok bool) {
	t.Helper()
	_ = conn.SetDeadline(time.Now().Add(within))
	if _, err := conn.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	n, err := conn.Read(buf)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return "", false
	}
	if err != nil {
		t.Fatal(err)
	}
	var told string
	if _, err := fmt.Sscan(string(buf[:n]), &name, &told); err != nil || told != "hello" {
		t.Errorf("%q, %v", buf[:n], err)
	}
	return name, true
}

// deliver sends a datagram that gets no answer, and waits until those before it have been handled.
func (f *forwarder) deliver(t *testing.T, conn net.Conn) {
	t.Helper()
	if _, answered := tryPacket(t, conn, 200*time.Millisecond); answered {
		t.Error("an answer")
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !is() {
		if time.Now().After(deadline) {
			t.Fatalf("in vain: %s", what)
		}
		<-time.After(5 * time.Millisecond)
	}
}
