package dataplane

import (
	"bufio"
	"context"
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

	"github.com/quic-go/quic-go"
	upstream "github.com/quic-go/quic-go/http3"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
	"github.com/coracle-dev/coracle/test/freeport"
)

// clientOfHTTP3 is a client at an address, which names a host in its handshake.
func clientOfHTTP3(t *testing.T, from, host string, port uint16) *http.Client {
	t.Helper()
	conn, err := net.ListenPacket("udp", from+":0")
	if err != nil {
		t.Fatal(err)
	}
	transport := &quic.Transport{Conn: conn}
	way := &upstream.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, ServerName: host},
		Dial: func(ctx context.Context, _ string, config *tls.Config, settings *quic.Config) (*quic.Conn, error) {
			return transport.Dial(ctx, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(port)}, config, settings)
		},
	}
	t.Cleanup(func() { way.Close(); transport.Close(); conn.Close() })
	return &http.Client{Transport: way, Timeout: 10 * time.Second}
}

// getHTTP3 returns the status and the body of the answer to a request for a host.
func getHTTP3(t *testing.T, client *http.Client, method, host, path, body string) string {
	t.Helper()
	var reader io.Reader
	if body != "" {
		reader = io.MultiReader(strings.NewReader(body)) // of no known length
	}
	request, err := http.NewRequestWithContext(t.Context(), method, "https://"+host+path, reader)
	if err != nil {
		t.Fatal(err)
	}
	request.Header["X-Forwarded-For"], request.Header["X_real_ip"] = []string{"192.0.2.1"}, []string{"192.0.2.1"}
	answer, err := client.Do(request)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.ProtoMajor != 3 {
		t.Errorf("%s %v", answer.Proto, err)
	}
	return fmt.Sprint(answer.StatusCode, " ", strings.TrimSpace(string(text)))
}

// TestHTTP3: requests come to the same routes, policies and metrics as those of HTTP/2, and to the process that follows.
func TestHTTP3(t *testing.T) {
	dir := childDir(t)
	port, shared := freeport.Port(t), freeport.Port(t)
	own := certificate(t, "Secret a/own", "a.test")
	seen := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s encoding=%v from=%s%s proto=%s port=%s %s", r.Method, r.Host, r.RequestURI, r.TransferEncoding, r.Header.Get("X-Forwarded-For"), r.Header.Get("X_real_ip"),
			r.Header.Get("X-Forwarded-Proto"), r.Header.Get("X-Forwarded-Port"), text)
	}))
	defer seen.Close()
	all := gateway.Route{Listeners: []string{"web", "other", "own"}, Source: "HTTPRoute shop/web", Host: "a.test", Match: gateway.Match{Path: "/"}, Backends: []gateway.Backend{{Endpoints: "web", Weight: 1}}}
	guarded := all
	guarded.Path, guarded.Policy = "/admin", "few"
	config := gateway.Config{
		Certificates: []gateway.Certificate{own},
		Listeners: []gateway.Listener{
			{Name: "web", Port: port, Protocol: gateway.HTTPS, Certificates: map[string][]string{"": {own.Source}}},
			{Name: "pass", Port: port, Protocol: gateway.Passthrough, Host: "pass.test"},
			{Name: "other", Port: shared, Protocol: gateway.HTTPS, Certificates: map[string][]string{"": {own.Source}}},
			{Name: "udp", Port: shared, Protocol: gateway.UDP},
			{Name: "own", Port: port, Protocol: gateway.HTTPS, Addresses: []string{"127.0.0.5"}, Certificates: map[string][]string{"": {own.Source}}},
		},
		Routes: []gateway.Route{all, guarded}, Streams: []gateway.Stream{stream("udp", "packets"), stream("pass", "web")},
		Policies: map[string]gateway.Policy{"few": {Clients: &gateway.Clients{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.3/32")}}}},
		HTTP3:    []uint16{port, shared}, Proxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")},
	}
	endpoints := gateway.Endpoints{"web": {seen.Listener.Addr().String()}, "packets": {packetEcho(t)}}
	writer := gateway.Writer{Files: dir.Files()}
	if _, err := writer.Write(config, endpoints); err != nil {
		t.Fatal(err)
	}
	first := startChild(t, dir)
	defer first.end(t)

	client := clientOfHTTP3(t, "127.0.0.1", "a.test", port)
	check := func(when string) {
		t.Helper()
		for _, c := range []struct{ method, host, path, body, want string }{
			{"GET", "a.test", "/x?y", "", fmt.Sprintf("200 GET a.test /x?y encoding=[] from=127.0.0.1 proto=https port=%d", port)},
			{"POST", "a.test", "/", "hello", fmt.Sprintf("200 POST a.test / encoding=[chunked] from=127.0.0.1 proto=https port=%d hello", port)},
			{"GET", "b.test", "/", "", "404 nothing serves this host and path"},
			{"GET", "a.test", "/admin;x/y", "", "403 this address may not come in"},
			{"GET", "a.test", "/x/..;/admin", "", "400 the path has a segment that some servers take for the directory above"},
		} {
			if got := getHTTP3(t, client, c.method, c.host, c.path, c.body); got != c.want {
				t.Errorf("%s: %s %s%s: %q, want %q", when, c.method, c.host, c.path, got, c.want)
			}
		}
	}
	check("at the start")
	if got := getHTTP3(t, clientOfHTTP3(t, "127.0.0.3", "a.test", port), "GET", "a.test", "/admin", ""); !strings.HasPrefix(got, "200") {
		t.Errorf("a client that may come in: %q", got)
	}
	for name, bad := range map[string]*http.Client{
		"a host of a stream": clientOfHTTP3(t, "127.0.0.1", "pass.test", port), "a balancer": clientOfHTTP3(t, "127.0.0.2", "a.test", port),
	} {
		if got := getHTTP3(t, bad, "GET", "a.test", "/", ""); strings.HasPrefix(got, "200") {
			t.Errorf("%s: %q", name, got)
		}
	}
	metrics, err := dir.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(metrics.Body)
	metrics.Body.Close()
	if !strings.Contains(string(text), `requests_total{code="403",kind="HTTPRoute",name="web",namespace="shop"} 1`) {
		t.Errorf("%s", text)
	}

	secure := &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true, ServerName: "a.test"}}}
	advertised := func(at string, port uint16) string {
		t.Helper()
		answer, body := ask(t, secure, "GET", fmt.Sprintf("https://%s:%d/", at, port), "a.test", "")
		if answer.StatusCode != http.StatusOK || answer.ProtoMajor != 2 {
			t.Errorf("HTTP/2: %s %q", answer.Status, body)
		}
		return answer.Header.Get("Alt-Svc")
	}
	if got := advertised("127.0.0.1", port); got != fmt.Sprintf(`h3=":%d"; ma=3600`, port) {
		t.Errorf("HTTP/2 tells of %q", got)
	}
	if got := advertised("127.0.0.1", shared); got != "" {
		t.Errorf("beside a listener of UDP %q is told", got)
	}
	if got := advertised("127.0.0.5", port); got != "" {
		t.Errorf("at an address of a Gateway alone %q is told", got)
	}
	packets, err := net.Dial("udp", fmt.Sprintf("127.0.0.1:%d", shared))
	if err != nil {
		t.Fatal(err)
	}
	defer packets.Close()
	for range 20 { // of which none may come to another socket
		hello(t, "UDP", packets)
	}

	next := startChild(t, dir)
	defer next.end(t)
	began := time.Now()
	check("after a restart")
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("after a restart a client waits for %s", took)
	}
	config.HTTP3 = nil
	if _, err := writer.Write(config, endpoints); err != nil {
		t.Fatal(err)
	}
	if _, err := dir.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := advertised("127.0.0.1", port); got != "" {
		t.Errorf("HTTP/2 tells of %q, which is off", got)
	}
	if got := getHTTP3(t, client, "GET", "a.test", "/", ""); strings.HasPrefix(got, "200") {
		t.Errorf("%q, though it is off", got)
	}
	if l, err := net.ListenPacket("udp", fmt.Sprintf(":%d", port)); err != nil {
		t.Errorf("the port is taken from others: %v", err)
	} else {
		l.Close()
	}
}

// TestWebSocketHTTP3: a WebSocket comes to the backend as one of HTTP/1.1 (RFC 9220), by the route of its GET.
func TestWebSocketHTTP3(t *testing.T) {
	dir := childDir(t)
	port := freeport.Port(t)
	echo := httptest.NewServer(http.HandlerFunc(echoUpgraded))
	defer echo.Close()
	all := gateway.Route{Listeners: []string{"web"}, Match: gateway.Match{Path: "/", Method: http.MethodGet}, Backends: []gateway.Backend{{Endpoints: "echo", Weight: 1}}}
	config := gateway.Config{Listeners: []gateway.Listener{{Name: "web", Port: port, Protocol: gateway.HTTPS}}, Routes: []gateway.Route{all}, HTTP3: []uint16{port}}
	writer := gateway.Writer{Files: dir.Files()}
	if _, err := writer.Write(config, gateway.Endpoints{"echo": {echo.Listener.Addr().String()}}); err != nil {
		t.Fatal(err)
	}
	c := startChild(t, dir)
	defer c.end(t)
	str := connectHTTP3(t.Context(), t, port)
	fmt.Fprintln(str, "hello")
	if got, err := bufio.NewReader(str).ReadString('\n'); got != "hello\n" {
		t.Errorf("%q %v", got, err)
	}
}

// beginHTTP3 opens as many connections and requests as one client may, sends most of each header, and then little by little, until the context ends.
func beginHTTP3(ctx context.Context, t *testing.T, port uint16) (wait func()) {
	t.Helper()
	const length = 15_000
	begin := append([]byte{0x01, 0x80, 0, length >> 8, length & 0xff}, make([]byte, length-1000)...) // a frame of type HEADERS (RFC 9114, section 7.2.2)
	config := &tls.Config{InsecureSkipVerify: true, ServerName: "a.test", NextProtos: []string{upstream.NextProtoH3}}
	var conns []*quic.Conn
	var streams []*quic.Stream
	for {
		conn, err := quic.DialAddr(ctx, fmt.Sprintf("127.0.0.1:%d", port), config, &quic.Config{KeepAlivePeriod: time.Second})
		if err != nil && len(streams) == 0 {
			t.Fatal(err)
		}
		if err != nil {
			break // it may have no more
		}
		conns = append(conns, conn)
		for {
			str, err := conn.OpenStream()
			if err != nil {
				break
			}
			if _, err := str.Write(begin); err != nil {
				t.Fatal(err)
			}
			streams = append(streams, str)
		}
	}
	t.Logf("%d requests on %d connections", len(streams), len(conns))
	return goes(func() {
		for ctx.Err() == nil {
			for _, str := range streams[:10] {
				_, _ = str.Write([]byte{0})
			}
			select {
			case <-ctx.Done():
			case <-time.After(floodPause):
			}
		}
		for _, conn := range conns {
			_ = conn.CloseWithError(0, "")
		}
	})
}
