package dataplane

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
	"github.com/coracle-dev/coracle/test/freeport"
)

// TestProxied: to whoever a balancer names as the client policies and backends hold, for HTTP, HTTPS and TCP. Others can name nobody.
func TestProxied(t *testing.T) {
	dir := childDir(t)
	plain, secure, raw := freeport.Port(t), freeport.Port(t), freeport.Port(t)
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Header.Get("X-Forwarded-For")) }))
	defer backend.Close()
	only := &gateway.Clients{Allow: []netip.Prefix{netip.MustParsePrefix("203.0.113.7/32")}}
	all := gateway.Route{Listeners: []string{"plain", "secure"}, Match: gateway.Match{Path: "/"}, Backends: []gateway.Backend{{Endpoints: "web", Weight: 1}}, Policy: "only"}
	echo := stream("raw", "echo")
	echo.Clients = only
	config := gateway.Config{
		Listeners: []gateway.Listener{{Name: "plain", Port: plain, Protocol: gateway.HTTP}, {Name: "secure", Port: secure, Protocol: gateway.HTTPS}, {Name: "raw", Port: raw, Protocol: gateway.TCP}},
		Routes:    []gateway.Route{all}, Streams: []gateway.Stream{echo}, Policies: map[string]gateway.Policy{"only": {Clients: only}},
		Proxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")},
	}
	writer := gateway.Writer{Files: dir.Files()}
	if _, err := writer.Write(config, gateway.Endpoints{"web": {backend.Listener.Addr().String()}, "echo": {streamEcho(t)}}); err != nil {
		t.Fatal(err)
	}
	first := startChild(t, dir)
	defer first.end(t)
	const balancer, other, header = "127.0.0.2", "127.0.0.1", "PROXY TCP4 203.0.113.7 192.0.2.1 4660 443\r\n"
	check := func(when string) {
		t.Helper()
		for _, c := range []struct{ from, header, want string }{
			{balancer, header, "203.0.113.7"},
			{balancer, strings.Replace(header, "113.7", "113.8", 1), "may not"},
			{balancer, "PROXY UNKNOWN\r\n", "may not"},
			{balancer, "", ""},
			{other, "", "may not"},
		} {
			for _, port := range []uint16{plain, secure} {
				if got := proxiedGet(t, port, port == secure, c.from, c.header); !strings.HasPrefix(got, c.want) && !strings.Contains(got, c.want) || c.want == "" && got != "" {
					t.Errorf("%s: %q from %s is answered with %q, want %q", when, c.header, c.from, got, c.want)
				}
			}
			conn := dialFrom(t, raw, c.from)
			fmt.Fprint(conn, c.header+"hello, all of you")
			got, _ := io.ReadAll(io.LimitReader(conn, 5))
			conn.Close()
			if (string(got) == "hello") != (c.want == "203.0.113.7") {
				t.Errorf("%s: %q from %s in TCP is answered with %q", when, c.header, c.from, got)
			}
		}
		// The attack: a client that names another one.
		for _, port := range []uint16{plain, secure} {
			if got := proxiedGet(t, port, port == secure, other, header); strings.Contains(got, "203.0.113.7") {
				t.Errorf("%s: a client names another one: %q", when, got)
			}
		}
		conn := dialFrom(t, raw, other)
		fmt.Fprint(conn, header+"hello, all of you")
		if got, _ := io.ReadAll(io.LimitReader(conn, 5)); len(got) > 0 {
			t.Errorf("%s: a client of TCP names another one: %q", when, got)
		}
		conn.Close()
	}
	check("at the start")
	next := startChild(t, dir)
	defer next.end(t)
	check("after a restart")
	config.Proxies = nil
	if _, err := writer.Write(config, gateway.Endpoints{"web": {backend.Listener.Addr().String()}, "echo": {streamEcho(t)}}); err != nil {
		t.Fatal(err)
	}
	if _, err := dir.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := proxiedGet(t, plain, false, balancer, header); strings.Contains(got, "203.0.113.7") {
		t.Errorf("a header is believed though nobody is trusted: %q", got)
	}
}

// dialFrom connects to a port from an address.
func dialFrom(t *testing.T, port uint16, from string) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	return conn
}

// proxiedGet sends a header and then a request, and returns the body of the answer; "" without an answer.
func proxiedGet(t *testing.T, port uint16, secure bool, from, header string) string {
	t.Helper()
	conn := dialFrom(t, port, from)
	defer conn.Close()
	fmt.Fprint(conn, header)
	if secure {
		conn = tls.Client(conn, &tls.Config{ServerName: "a.test", InsecureSkipVerify: true})
	}
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n")
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(answer.Body)
	return string(body)
}
