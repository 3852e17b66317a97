package dataplane

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
	"github.com/coracle-dev/coracle/pkg/network/gateway/routes"
)

// rawHTTP2 is a client that sends whatever headers it is given.
type rawHTTP2 struct {
	net.Conn
	*http2.Framer
	next    uint32
	leaving bool // the server has said that it closes the connection
}

func openHTTP2(t testing.TB, port uint16) *rawHTTP2 {
	t.Helper()
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return speakHTTP2(conn)
}

// openSecure names a host in the handshake.
func openSecure(t testing.TB, port uint16, name string) *rawHTTP2 {
	t.Helper()
	conn, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port), &tls.Config{ServerName: name, InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return speakHTTP2(conn)
}

func speakHTTP2(conn net.Conn) *rawHTTP2 {
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = io.WriteString(conn, http2.ClientPreface)
	c := &rawHTTP2{Conn: conn, Framer: http2.NewFramer(conn, conn), next: 1}
	c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_ = c.WriteSettings()
	return c
}

// block returns a header block of names and values.
func block(fields ...string) []byte {
	var out bytes.Buffer
	encoder := hpack.NewEncoder(&out)
	encoder.SetMaxDynamicTableSize(0)
	for i := 0; i < len(fields); i += 2 {
		_ = encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	return out.Bytes()
}

// ask sends a request and returns the status of the answer with its body, or what ended the stream.
func (c *rawHTTP2) ask(fields ...string) (status, body string) {
	id := c.next
	c.next += 2
	if err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block(fields...), EndStream: true, EndHeaders: true}); err != nil {
		return err.Error(), ""
	}
	for {
		frame, err := c.ReadFrame()
		if err != nil {
			return err.Error(), body
		}
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			if status = frame.PseudoValue("status"); frame.StreamEnded() {
				return status, body
			}
		case *http2.DataFrame:
			if body += string(frame.Data()); frame.StreamEnded() {
				return status, body
			}
		case *http2.RSTStreamFrame:
			return frame.ErrCode.String(), body
		case *http2.GoAwayFrame:
			c.leaving = true
			if frame.ErrCode != http2.ErrCodeNo {
				return frame.ErrCode.String(), body
			}
		}
	}
}

// testRefusedHTTP2: headers that HTTP/1.1 could not have, which a backend that speaks it would take for another request, without and with TLS.
func testRefusedHTTP2(t *testing.T, s *served, config gateway.Config, plain, secure uint16) {
	t.Run("http", func(t *testing.T) {
		refusedHTTP2(t, s, config, "http", func() *rawHTTP2 { return openHTTP2(t, plain) })
	})
	t.Run("https", func(t *testing.T) {
		refusedHTTP2(t, s, config, "https", func() *rawHTTP2 { return openSecure(t, secure, "r.test") })
	})
}

func refusedHTTP2(t *testing.T, s *served, config gateway.Config, scheme string, open func() *rawHTTP2) {
	usual := map[string]string{"http": "80", "https": "443"}[scheme]
	got := make(chan string, 100)
	config.Routes = []gateway.Route{route("r.test", "/", "r", gateway.ToHTTP)}
	config.Routes[0].RequestHeaders = &gateway.Headers{Set: []gateway.Header{{Name: "X-A", Value: "1"}}} // with which headers are looked at
	s.apply(t, config, gateway.Endpoints{"r": {rawBackend(t, got)}})
	with := func(method, path string, more ...string) []string {
		return append([]string{":method", method, ":scheme", scheme, ":authority", "r.test", ":path", path}, more...)
	}
	for name, c := range map[string]struct {
		fields    []string
		forwarded bool
	}{
		"a path":                        {with("GET", "/x"), true},
		"a URL behind a scheme":         {with("GET", "x:http://any.host/admin"), false},
		"a scheme with a path":          {with("GET", "x:/admin"), false},
		"a URL":                         {with("GET", "http://r.test/admin"), false},
		"a URL of another host":         {with("GET", "http://other.test/admin"), false},
		"a path without a slash":        {with("GET", "admin"), false},
		"a query alone":                 {with("GET", "?x"), false},
		"a star":                        {with("GET", "*"), false},
		"a blank in the path":           {with("GET", "/ HTTP/1.1\r\nHost: r.test\r\n\r\nGET /evil"), false},
		"a tunnel":                      {[]string{":method", "CONNECT", ":authority", "r.test:80"}, false},
		"a tunnel with a path":          {with("CONNECT", "/x"), false},
		"a tunnel of another protocol":  {with("CONNECT", "/x", ":protocol", "tcp"), false},
		"another host":                  {with("GET", "/x", "host", "other.test"), false},
		"the host twice":                {with("GET", "/x", "host", "r.test", "host", "r.test"), false},
		"the same host":                 {with("GET", "/x", "host", "r.test"), true},
		"the same host with its port":   {with("GET", "/x", "host", "r.test:"+usual), false}, // the library, which compares them as they are written
		"the host with another port":    {with("GET", "/x", "host", "r.test:8080"), false},
		"a host with a path":            {[]string{":method", "GET", ":scheme", scheme, ":authority", "r.test/x", ":path", "/"}, false},
		"a line in a value":             {with("GET", "/x", "x-b", "1\r\nHost: other.test"), false},
		"a line in a method":            {with("GET /evil HTTP/1.1\r\nX: ", "/x"), false},
		"chunks":                        {with("POST", "/x", "transfer-encoding", "chunked"), false},
		"a connection":                  {with("GET", "/x", "connection", "upgrade", "upgrade", "h2c"), false},
		"a length and no body":          {with("GET", "/x", "content-length", "5"), true}, // without the length
		"a segment with parameters":     {with("GET", "/x/..;/admin"), false},
		"segments with backslashes":     {with("GET", `/x\..\admin`), false},
		"a name in upper case":          {with("GET", "/x", "X-Upper", "1"), false},
		"a pseudo header behind others": {append([]string{"x-b", "1"}, with("GET", "/x")...), false},
		"two paths":                     {with("GET", "/x", ":path", "/admin"), false},
	} {
		status, _ := open().ask(c.fields...)
		if (status == "200") != c.forwarded {
			t.Errorf("%s: %s", name, status)
		}
		select {
		case head := <-got:
			if !c.forwarded || !strings.HasPrefix(head, "GET /x HTTP/1.1\r\nHost: r.test\r\n") || strings.Count(strings.ToLower(head), "\nhost:") != 1 || strings.Contains(head, "Content-Length") {
				t.Errorf("%s: the backend gets %q", name, head)
			}
		default:
			if c.forwarded {
				t.Errorf("%s: the backend gets nothing", name)
			}
		}
	}
	one := open() // others may have requests on the connection of one that is refused
	for _, path := range []string{"/x/..;/admin", "/x", "/x/..;/admin"} {
		if status, _ := one.ask(with("GET", path)...); status != map[bool]string{true: "200", false: "400"}[path == "/x"] {
			t.Errorf("%s on a connection with others: %s", path, status)
		}
		for len(got) > 0 {
			<-got
		}
	}
	if one.leaving {
		t.Error("the connection ends because of a request that was refused")
	}
}

// TestFindWebSocket: a WebSocket in HTTP/2 comes to the route that one in HTTP/1.1 comes to.
func TestFindWebSocket(t *testing.T) {
	all, get := route("r.test", "/", "all", gateway.ToHTTP), route("r.test", "/", "get", gateway.ToHTTP)
	get.Method = http.MethodGet
	table := routes.New(gateway.Config{Listeners: []gateway.Listener{{Name: "plain", Port: 80, Protocol: gateway.HTTP}}, Routes: []gateway.Route{all, get}}, nil, nil)
	r := (&http.Request{Method: http.MethodConnect, URL: &url.URL{Path: "/"}, Header: http.Header{":protocol": {"websocket"}}, ProtoMajor: 2}).WithContext(
		context.WithValue(t.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80}))
	if found, _ := find(table, "r.test", r); found.Route == nil || found.Route.Method != http.MethodGet || r.Method != http.MethodConnect {
		t.Errorf("found %+v for %s", found.Route, r.Method)
	}
}

// TestRefused: what the library for HTTP/2 refuses as well, as versions of it before did not.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		method, target string
		header         http.Header
		refused        bool
	}{
		"a path":                      {"GET", "/x", nil, false},
		"a URL behind a scheme":       {"GET", "x:http://any.host/admin", nil, true},
		"a URL":                       {"GET", "http://r.test/admin", nil, true},
		"the server":                  {"OPTIONS", "*", nil, false},
		"a star":                      {"GET", "*", nil, true},
		"nothing":                     {"GET", "", nil, true},
		"a tunnel":                    {"CONNECT", "/x", nil, true},
		"a tunnel of another kind":    {"CONNECT", "/x", http.Header{":protocol": {"tcp"}}, true},
		"a WebSocket":                 {"CONNECT", "/x", http.Header{":protocol": {"websocket"}}, false},
		"a WebSocket without a path":  {"CONNECT", "r.test:80", http.Header{":protocol": {"websocket"}}, true},
		"the host":                    {"GET", "/x", http.Header{"Host": {"R.test"}}, false},
		"another host":                {"GET", "/x", http.Header{"Host": {"other.test"}}, true},
		"the host twice":              {"GET", "/x", http.Header{"Host": {"r.test", "r.test"}}, true},
		"a segment with parameters":   {"GET", "/x/..;a/admin", nil, true},
		"the directory itself, as so": {"GET", "/x/.;/admin", nil, true},
	} {
		u, err := url.Parse(c.target)
		if err != nil {
			t.Fatal(err)
		}
		r := &http.Request{Method: c.method, URL: u, RequestURI: c.target, Host: "r.test", Header: c.header, ProtoMajor: 2}
		if why := refused(r); (why != "") != c.refused {
			t.Errorf("%s: %q", name, why)
		}
		if tidy(r.Header); r.Header["Host"] != nil {
			t.Errorf("%s: %v is left", name, r.Header)
		}
	}
}
