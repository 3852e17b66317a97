package streams

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
	"github.com/coracle-dev/coracle/test/freeport"
)

// dialFrom connects from an address.
func dialFrom(t *testing.T, from string, number uint16) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 0))}
	conn, err := dialer.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", number))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	return conn
}

// TestClients: a stream is only for the clients that it admits.
func TestClients(t *testing.T) {
	f := start(t)
	plain, passed, datagrams := freeport.Port(t), freeport.Port(t), freeport.Port(t)
	behind := certificate(t, "Secret b/behind", "pass.test")
	f.config.Listeners = []gateway.Listener{
		{Name: "plain", Port: plain, Protocol: gateway.TCP}, {Name: "pass", Port: passed, Protocol: gateway.Passthrough, Host: "pass.test", HostsApart: true},
		{Name: "udp", Port: datagrams, Protocol: gateway.UDP},
	}
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { udp.Close() })
	f.endpoints = gateway.Endpoints{"a": {echo(t, "a")}, "b": {secureEcho(t, "b", behind)}, "u": {udp.LocalAddr().String()}}
	f.config.Streams = []gateway.Stream{to("plain", "a"), to("pass", "b"), to("udp", "u")}
	rules := &gateway.Clients{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/24")}, Deny: []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}}
	for i := range f.config.Streams {
		f.config.Streams[i].Clients = rules
	}
	f.apply(t)
	for from, admitted := range map[string]bool{"127.0.0.1": true, "127.0.0.2": false, "127.0.1.1": false} {
		secure := tls.Client(dialFrom(t, from, passed), trusting("pass.test", behind))
		if !admitted {
			isClosed(t, dialFrom(t, from, plain))
			if err := secure.Handshake(); !closed(err) {
				t.Errorf("%s: %v", from, err)
			}
			continue
		}
		if got := ask(t, dialFrom(t, from, plain)) + ask(t, secure); got != "ab" {
			t.Errorf("%s is served by %q", from, got)
		}
	}
	send := func(from string) {
		conn, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 0)), net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), datagrams)))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprint(conn, from)
	}
	send("127.0.0.2")
	send("127.0.0.1") // the only one that comes
	_ = udp.SetDeadline(time.Now().Add(patience))
	got := make([]byte, 100)
	n, _, err := udp.ReadFrom(got)
	if err != nil || string(got[:n]) != "127.0.0.1" {
		t.Errorf("%q, %v", got[:n], err)
	}
}

// TestHandshakesOfOneClient: a client that opens connections and names no host leaves room for others.
func TestHandshakesOfOneClient(t *testing.T) {
	f := start(t)
	number := freeport.Port(t)
	own := certificate(t, "Secret a/own", "tls.test")
	f.config = gateway.Config{
		Certificates: []gateway.Certificate{own},
		Listeners:    []gateway.Listener{{Name: "l", Port: number, Protocol: gateway.TLS, Certificates: map[string][]string{"": {"Secret a/own"}}}},
		Streams:      []gateway.Stream{to("l", "a")},
	}
	f.endpoints = gateway.Endpoints{"a": {echo(t, "a")}}
	f.apply(t)
	var silent []net.Conn
	for range maxOfClient {
		silent = append(silent, dialFrom(t, "127.0.0.2", number))
	}
	isClosed(t, dialFrom(t, "127.0.0.2", number)) // connections are accepted in their order
	if got := ask(t, tls.Client(dialFrom(t, "127.0.0.3", number), trusting("tls.test", own))); got != "a" {
		t.Errorf("another client is served by %q", got)
	}
	for _, conn := range silent {
		conn.Close()
	}
	for deadline := time.Now().Add(patience); ; { // once the server has seen them end
		secure := tls.Client(dialFrom(t, "127.0.0.2", number), trusting("tls.test", own))
		if err := secure.Handshake(); err == nil {
			secure.Close()
			break
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// TestHandshakes: an IPv6 network of 64 bits counts as one client, and all clients together have a bound.
func TestHandshakes(t *testing.T) {
	h := handshakes{of: map[netip.Prefix]int{}}
	address := func(n int) netip.Addr {
		return netip.AddrFrom16([16]byte{0xfd, 0, 0, 0, 0, 0, byte(n >> 8), byte(n), 15: byte(n)})
	}
	one := func(n int) netip.Addr { return netip.AddrFrom16([16]byte{0xfd, 14: byte(n >> 8), 15: byte(n)}) }
	for n := range maxOfClient {
		if !h.begin(one(n)) {
			t.Fatal(n)
		}
	}
	if h.begin(one(maxOfClient)) {
		t.Error("one network takes more than its part")
	}
	for n := maxOfClient; n < maxHandshakes; n++ {
		if !h.begin(address(n)) {
			t.Fatal(n)
		}
	}
	if h.begin(netip.MustParseAddr("192.0.2.1")) {
		t.Error("there is no bound")
	}
	for n := range maxOfClient {
		h.end(one(n))
	}
	for n := maxOfClient; n < maxHandshakes; n++ {
		h.end(address(n))
	}
	if h.total != 0 || len(h.of) != 0 {
		t.Errorf("%d are left: %v", h.total, h.of)
	}
}
