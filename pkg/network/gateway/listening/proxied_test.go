package listening

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"
)

// named returns a header of a version that names a client.
func named(t *testing.T, version byte, client string) string {
	t.Helper()
	at := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(client))
	text, err := proxyproto.HeaderProxyFromAddrs(version, at, at).Format()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// binaryHeader is one of version 2.
func binaryHeader(command, family byte, length int, rest string) string {
	return string(proxyproto.SIGV2) + string([]byte{command, family, byte(length >> 8), byte(length)}) + rest
}

// TestProxied: the connections of a balancer name their clients or are closed, and nothing that follows their header is lost.
func TestProxied(t *testing.T) {
	s := New()
	l, err := s.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s.TrustProxies([]netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")})
	go tell(l)
	four := "\xcb\x00\x71\x07\x7f\x00\x00\x01\x12\x34\x00\x50" // 203.0.113.7:4660 to 127.0.0.1:80
	for name, c := range map[string]struct{ from, header, want string }{
		"version 1":                       {"127.0.0.2", named(t, 1, "203.0.113.7:4660"), "203.0.113.7:4660"},
		"version 1 with IPv6":             {"127.0.0.2", named(t, 1, "[2001:db8::1]:4660"), "[2001:db8::1]:4660"},
		"version 2":                       {"127.0.0.2", named(t, 2, "203.0.113.7:4660"), "203.0.113.7:4660"},
		"version 2 with IPv6":             {"127.0.0.2", named(t, 2, "[2001:db8::1]:4660"), "[2001:db8::1]:4660"},
		"version 2 with more":             {"127.0.0.2", binaryHeader(0x21, 0x11, 12+4096-12, four+strings.Repeat("x", 4096-12)), "203.0.113.7:4660"},
		"version 2 with too much":         {"127.0.0.2", binaryHeader(0x21, 0x11, 4097, four+strings.Repeat("x", 4097-12)), ""},
		"an unknown client":               {"127.0.0.2", "PROXY UNKNOWN\r\n", "127.0.0.2"},
		"an unknown client, with words":   {"127.0.0.2", "PROXY UNKNOWN a b c\r\n", "127.0.0.2"},
		"a check of the balancer's":       {"127.0.0.2", binaryHeader(0x20, 0, 0, ""), "127.0.0.2"},
		"a check that names a client":     {"127.0.0.2", binaryHeader(0x20, 0x11, 12, four), "127.0.0.2"},
		"a client of UDP":                 {"127.0.0.2", binaryHeader(0x21, 0x12, 12, four), ""},
		"a client of a unix socket":       {"127.0.0.2", binaryHeader(0x21, 0x31, 216, strings.Repeat("\x00", 216)), ""},
		"a command that is none":          {"127.0.0.2", binaryHeader(0x22, 0x11, 12, four), ""},
		"an address that is cut":          {"127.0.0.2", binaryHeader(0x21, 0x11, 4, four[:4]), ""},
		"no header":                       {"127.0.0.2", "GET / HTTP/1.1\r\n", ""},
		"nothing":                         {"127.0.0.2", "", ""},
		"a line without an end":           {"127.0.0.2", "PROXY UNKNOWN " + strings.Repeat("x", 200), ""},
		"a line with another end":         {"127.0.0.2", "PROXY UNKNOWN     \n", ""},
		"an address that is none":         {"127.0.0.2", "PROXY TCP4 203.0.113.700 127.0.0.1 1 2\r\n", ""},
		"a port that is none":             {"127.0.0.2", "PROXY TCP4 203.0.113.7 127.0.0.1 65536 2\r\n", ""},
		"another client with a header":    {"127.0.0.1", named(t, 1, "203.0.113.7:4660"), "127.0.0.1"},
		"another client with version 2":   {"127.0.0.1", named(t, 2, "203.0.113.7:4660"), "127.0.0.1"},
		"another client without one":      {"127.0.0.1", "", "127.0.0.1"},
		"a second header is what is sent": {"127.0.0.2", named(t, 1, "203.0.113.7:4660") + named(t, 1, "203.0.113.8:1"), "203.0.113.7:4660"},
	} {
		rest := ""
		switch {
		case c.from == "127.0.0.1":
			rest = c.header // which is the client's own text
		case strings.HasPrefix(name, "a second"):
			rest = named(t, 1, "203.0.113.8:1")
		}
		client, text := asked(t, l.Addr().String(), c.from, c.header+"hello")
		if c.want == "" && client != "" || !strings.HasPrefix(client, c.want) || client != "" && text != rest+"hello" {
			t.Errorf("%s: the client is %q and sends %q, want %q and %q", name, client, text, c.want, rest+"hello")
		}
	}
	// A header that does not come keeps nobody waiting, and may come in pieces.
	slow, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	header := named(t, 1, "203.0.113.7:4660")
	fmt.Fprint(slow, header[:20])
	if client, _ := asked(t, l.Addr().String(), "127.0.0.2", header); client != "203.0.113.7:4660" {
		t.Errorf("beside a slow one the client is %q", client)
	}
	fmt.Fprint(slow, header[20:]+"x")
	_ = slow.(*net.TCPConn).CloseWrite()
	if got, _ := io.ReadAll(slow); string(got) != "203.0.113.7:4660 x" {
		t.Errorf("a header in pieces: %q", got)
	}
}

// tell answers connections with the client's address, and what the client has sent.
func tell(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			text, _ := io.ReadAll(c)
			fmt.Fprint(c, c.RemoteAddr().String()+" "+string(text))
		}()
	}
}

// asked sends a text from an address, and returns what tell answers.
func asked(t *testing.T, to, from, text string) (client, sent string) {
	t.Helper()
	c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).Dial("tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = io.WriteString(c, text)
	_ = c.(*net.TCPConn).CloseWrite()
	answer, _ := io.ReadAll(c)
	client, sent, _ = strings.Cut(string(answer), " ")
	return client, sent
}

// FuzzHeader: whatever a connection begins with, no more is read than a header, and a whole header is all that is read.
func FuzzHeader(f *testing.F) {
	f.Add([]byte("PROXY TCP4 203.0.113.7 127.0.0.1 4660 80\r\nGET"))
	f.Add([]byte("PROXY UNKNOWN\r\n"))
	f.Add([]byte(binaryHeader(0x21, 0x11, 12, "\xcb\x00\x71\x07\x7f\x00\x00\x01\x12\x34\x00\x50GET")))
	f.Add([]byte(binaryHeader(0x20, 0, 65535, "")))
	f.Fuzz(func(t *testing.T, sent []byte) {
		rest := bytes.NewReader(sent)
		header, err := readHeader(rest)
		if read := len(sent) - rest.Len(); read > binaryStart+maxRest || err == nil && (read != len(header) || !bytes.HasPrefix(sent, header)) {
			t.Errorf("%d bytes are read, of a header of %d: %v", read, len(header), err)
		}
	})
}
