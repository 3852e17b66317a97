package dataplane

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// smuggled is what some servers take for two requests, or for one to another host. What Go's server understands without doubt is forwarded in
// words that all understand; the rest is refused.
var smuggled = []struct {
	name, request string
	forwarded     bool
}{
	{"two lengths", "POST / HTTP/1.1\r\nHost: r.test\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", false},
	{"two lengths in one", "POST / HTTP/1.1\r\nHost: r.test\r\nContent-Length: 5, 6\r\n\r\nhello", false},
	{"a length with a sign", "POST / HTTP/1.1\r\nHost: r.test\r\nContent-Length: +5\r\n\r\nhello", false},
	{"a length in hex", "POST / HTTP/1.1\r\nHost: r.test\r\nContent-Length: 0x5\r\n\r\nhello", false},
	{"length and chunks", "POST / HTTP/1.1\r\nHost: r.test\r\nVia: 1.1 proxy\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /evil HTTP/1.1\r\nHost: r.test\r\n\r\n", true},
	{"chunks and length", "POST / HTTP/1.1\r\nHost: r.test\r\nVia: 1.1 proxy\r\nTransfer-Encoding: chunked\r\ncontent-length: 44\r\n\r\n0\r\n\r\nGET /evil HTTP/1.1\r\nHost: r.test\r\n\r\n", true},
	{"an unknown encoding", "POST / HTTP/1.1\r\nHost: r.test\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", false},
	{"two encodings", "POST / HTTP/1.1\r\nHost: r.test\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", false},
	{"a list of encodings", "POST / HTTP/1.1\r\nHost: r.test\r\nTransfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n", false},
	{"an encoding with a tab", "POST / HTTP/1.1\r\nHost: r.test\r\nTransfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n", false},
	{"a blank before the colon", "POST / HTTP/1.1\r\nHost: r.test\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n", false},
	{"a blank in a name", "GET / HTTP/1.1\r\nHost: r.test\r\nX A: 1\r\n\r\n", false},
	{"a name that is none", "GET / HTTP/1.1\r\nHost: r.test\r\nX\x00A: 1\r\n\r\n", false},
	{"no name", "GET / HTTP/1.1\r\nHost: r.test\r\n: 1\r\n\r\n", false},
	{"a zero in a value", "GET / HTTP/1.1\r\nHost: r.test\r\nX: a\x00b\r\n\r\n", false},
	{"a carriage return in a value", "GET / HTTP/1.1\r\nHost: r.test\r\nX: a\rTransfer-Encoding: chunked\r\n\r\n", false},
	{"a folded line", "GET / HTTP/1.1\r\nHost: r.test\r\nX: a\r\n Transfer-Encoding: chunked\r\n\r\n", true},
	{"a first line that is folded", "GET / HTTP/1.1\r\n Host: r.test\r\nHost: r.test\r\n\r\n", false},
	{"two hosts", "GET / HTTP/1.1\r\nHost: r.test\r\nHost: other.test\r\n\r\n", false},
	{"the same host twice", "GET / HTTP/1.1\r\nHost: r.test\r\nHost: r.test\r\n\r\n", false},
	{"no host", "GET / HTTP/1.1\r\n\r\n", false},
	{"a host with a path", "GET / HTTP/1.1\r\nHost: r.test/x\r\n\r\n", false},
	{"a host with a user", "GET / HTTP/1.1\r\nHost: other.test@r.test\r\n\r\n", false},
	{"two hosts in one", "GET / HTTP/1.1\r\nHost: r.test,other.test\r\n\r\n", false},
	{"a URL of another host", "GET http://r.test/ HTTP/1.1\r\nHost: other.test\r\n\r\n", false},
	{"a URL", "GET http://r.test/ HTTP/1.1\r\nHost: r.test\r\n\r\n", false},
	{"a tunnel", "CONNECT r.test:80 HTTP/1.1\r\nHost: r.test\r\n\r\n", false},
	{"a version that is none", "GET / HTTP/1.1 HTTP/1.1\r\nHost: r.test\r\n\r\n", false},
	{"HTTP/0.9", "GET / of a file\r\n\r\n", false},
	{"a chunk whose length is too long", "POST / HTTP/1.1\r\nHost: r.test\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000000\r\n", true},
	{"a chunk whose length is negative", "POST / HTTP/1.1\r\nHost: r.test\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n\r\n", true},
	{"a length and no body", "GET / HTTP/1.1\r\nHost: r.test\r\nContent-Length: 37\r\n\r\nGET /evil HTTP/1.1\r\nHost: r.test\r\n\r\n.", true},
	{"headers of the connection", "GET / HTTP/1.1\r\nHost: r.test\r\nConnection: close, X-Forwarded-For, Host, Content-Length\r\nContent-Length: 0\r\n\r\n", true},
}

// testRefused: a backend sees nothing of requests that can be read in two ways.
func testRefused(t *testing.T, s *served, config gateway.Config, port uint16) {
	got := make(chan string, 100)
	backend := rawBackend(t, got)
	config.Routes = []gateway.Route{route("r.test", "/", "r", gateway.ToHTTP)}
	s.apply(t, config, gateway.Endpoints{"r": {backend}})
	for _, c := range smuggled {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		fmt.Fprint(conn, c.request)
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err == nil && answer.StatusCode < 400 && !c.forwarded {
			t.Errorf("%s: %d", c.name, answer.StatusCode)
		}
		_ = conn.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, conn)
		conn.Close()
		for empty := false; !empty; {
			select {
			case head := <-got:
				if !c.forwarded || strings.HasPrefix(head, "GET /evil") || strings.Contains(head, "Content-Length") && strings.Contains(head, "Transfer-Encoding") {
					t.Errorf("%s: the backend gets %q", c.name, head)
				}
			default:
				empty = true
			}
		}
	}
}

// testChunked: chunks close no connection, unless there is a proxy at its other end, which could have taken something else for the body.
func testChunked(t *testing.T, s *served, config gateway.Config, port uint16) {
	config.Routes = []gateway.Route{route("r.test", "/", "r", gateway.ToHTTP)}
	s.apply(t, config, gateway.Endpoints{"r": {backend(t, "one")}})
	for header, kept := range map[string]bool{
		"": true, "X-Forwarder: 1\r\n": true, "Via: 1.1 a\r\n": false, "x-forwarded-for: 192.0.2.1\r\n": false, "Forwarded: for=192.0.2.1\r\n": false,
		"X-Real-IP: 192.0.2.1\r\n": false, "X-Forwarded-Host: r.test\r\n": false, "CF-Connecting-IP: 192.0.2.1\r\n": false, "True-Client-IP: 192.0.2.1\r\n": false,
	} {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		fmt.Fprint(conn, strings.Repeat("POST / HTTP/1.1\r\nHost: r.test\r\n"+header+"Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", 2))
		reader := bufio.NewReader(conn)
		answered := 0
		for range 2 {
			answer, err := http.ReadResponse(reader, nil)
			if err != nil {
				break
			}
			_, _ = io.Copy(io.Discard, answer.Body)
			answered++
		}
		if (answered == 2) != kept || answered == 0 {
			t.Errorf("with %q %d of 2 requests are answered", header, answered)
		}
	}
}

// rawBackend answers each connection once, and sends the heads of requests as they came.
func rawBackend(t *testing.T, got chan<- string) string {
	t.Helper()
	l := listenAny(t)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				reader := bufio.NewReader(conn)
				head := ""
				for !strings.HasSuffix(head, "\r\n\r\n") {
					line, err := reader.ReadString('\n')
					if err != nil {
						return
					}
					head += line
				}
				got <- head
				fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
			}()
		}
	}()
	return l.Addr().String()
}
