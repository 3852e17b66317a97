package dataplane

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// testBelieved: what a client says of itself in headers does not reach backends, nor their mirrors.
func testBelieved(t *testing.T, s *served, config gateway.Config, port uint16) {
	one, mirror := record(t), record(t)
	r := route("f.test", "/", "one", gateway.ToHTTP)
	r.Mirrors = []gateway.Mirror{{Backend: gateway.Backend{Endpoints: "mirror"}}}
	set := route("f.test", "/set", "one", gateway.ToHTTP)
	set.RequestHeaders = &gateway.Headers{Set: []gateway.Header{{Name: "X-Forwarded-Prefix", Value: "/shop"}, {Name: "X-Real-Ip", Value: "192.0.2.9"}, {Name: "X_real_ip", Value: "192.0.2.8"}}}
	config.Routes = []gateway.Route{r, set}
	s.apply(t, config, gateway.Endpoints{"one": {one.address()}, "mirror": {mirror.address()}})
	want := map[string]string{
		"X-Forwarded-For": "127.0.0.1", "X-Real-Ip": "127.0.0.1", "X-Forwarded-Host": "f.test", "X-Forwarded-Proto": "http", "X-Forwarded-Port": fmt.Sprint(port),
		"Forwarded": "", "X-Forwarded-Scheme": "", "X-Forwarded-Prefix": "", "X-Forwarded-Server": "", "X-Scheme": "", "X-Original-Forwarded-For": "",
		"X-Original-Url": "", "X-Rewrite-Url": "", "True-Client-Ip": "", "X-Client-Ip": "", "X-Secret": "", "X-Forwarded-Ssl": "", "X-Forwarded-Protocol": "",
		"X-Forwarded-Uri": "", "X-Forwarded-Anything": "", "X-Forwarded": "", "Front-End-Https": "", "X-Url-Scheme": "", "X-Original-Uri": "", "X-Original-Host": "",
		"X-Cluster-Client-Ip": "", "Cf-Connecting-Ip": "", "Client-Ip": "", "Proxy": "", "Ssl-Client-Verify": "", "X_real_ip": "", "X_forwarded-For": "", "X-Forwarded_proto": "",
		"X_forwarded_host": "", "True_client_ip": "", "X.real.ip": "", "X_custom": "", "X-Realm": "192.0.2.1", "Proxy-Name": "192.0.2.1",
	}
	headers := []string{"Connection", "X-Secret, X-Real-Ip, X-Forwarded-Port, X-Forwarded-For, X-Forwarded-Host, X-Forwarded-Proto"}
	fields := []string{":method", "GET", ":scheme", "http", ":authority", "f.test", ":path", "/"}
	for name := range want {
		headers = append(headers, name, "192.0.2.1")
		if name != "X-Secret" { // which is of the connection, that HTTP/2 has no headers for
			fields = append(fields, strings.ToLower(name), "192.0.2.1")
		}
	}
	client := direct(nil)
	defer client.CloseIdleConnections()
	_, body := ask(t, client, "GET", at(port, "/"), "f.test", "", headers...)
	_, other := openHTTP2(t, port).ask(fields...)
	eventually(t, func() bool { return len(mirror.all()) == 2 })
	got := mirror.all()
	for _, text := range []string{body, other} {
		var one recorded
		if err := json.Unmarshal([]byte(text), &one); err != nil {
			t.Fatal(err, text)
		}
		got = append(got, one)
	}
	for i, one := range got {
		for name, value := range want {
			if strings.Join(one.Header[name], ",") != value {
				t.Errorf("request %d: %s is %q, want %q", i, name, one.Header[name], value)
			}
		}
	}
	if _, body := ask(t, client, "GET", at(port, "/set"), "f.test", ""); !strings.Contains(body, `"/shop"`) || !strings.Contains(body, `"192.0.2.9"`) || !strings.Contains(body, `"192.0.2.8"`) {
		t.Errorf("what the route sets: %s", body)
	}

	heads := make(chan string, 10)
	config.Routes = []gateway.Route{route("f.test", "/", "raw", gateway.ToHTTP)}
	s.apply(t, config, gateway.Endpoints{"raw": {rawBackend(t, heads)}})
	for upgrade, kept := range map[string]bool{"h2c": false, "H2C": false, "websocket, h2c": false, "websocket": true, "SPDY/3.1": true} {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: f.test\r\nConnection: Upgrade, HTTP2-Settings, close\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\nUpgrade: %s\r\n\r\n", upgrade)
		_, _ = io.Copy(io.Discard, conn)
		conn.Close()
		select {
		case head := <-heads:
			if head := strings.ToLower(head); strings.Contains(head, "upgrade: "+strings.ToLower(upgrade)) != kept || strings.Contains(head, "http2-settings") || strings.Contains(head, "h2c") {
				t.Errorf("%s: the backend gets %q", upgrade, head)
			}
		default:
			t.Errorf("%s: the backend gets nothing", upgrade)
		}
	}
}

// testPaths: however a path is written, it does not come past a rewrite, and leads to nothing outside of it.
func testPaths(t *testing.T, s *served, config gateway.Config, port uint16) {
	groups := func(host, path, to string) gateway.Route {
		r := route(host, path, "one", gateway.ToHTTP)
		r.Kind, r.Rewrite = gateway.Expression, &gateway.Rewrite{Path: &gateway.PathRewrite{Path: to, Groups: true}}
		return r
	}
	prefix := route("s.test", "/shop", "one", gateway.ToHTTP)
	prefix.Rewrite = &gateway.Rewrite{Path: &gateway.PathRewrite{Prefix: true, Path: "/v2"}}
	moved := route("s.test", "/old", "one", gateway.ToHTTP)
	moved.Redirect, moved.Backends = &gateway.Redirect{Path: &gateway.PathRewrite{Prefix: true, Path: "/new"}, Status: http.StatusFound, Port: 80}, nil
	config.Routes = []gateway.Route{groups("g.test", "/api(.*)", "/v1/${1}"), groups("g.test", "/all/(.*)", "${1}"), prefix, moved, route("s.test", "/", "one", gateway.ToHTTP)}
	s.apply(t, config, gateway.Endpoints{"one": {backend(t, "one")}})
	for _, c := range []struct {
		host, path string
		status     int
		want       string
	}{
		{"g.test", "/api/x?q=1", 200, "one /v1/x?q=1"},
		{"g.test", "/api../admin", 400, "the path leads"},
		{"g.test", "/api..%2fadmin", 400, "the path leads"},
		{"g.test", "/api./admin", 400, "the path leads"},
		{"g.test", "/api..a/..b", 200, "one /v1/..a/..b"},
		{"g.test", "/api%2e%2e/%2e%2e/admin", 404, ""},
		{"g.test", "/api..;/admin", 400, "the path leads"},
		{"g.test", "/all/http:/any.host/admin", 200, "one /http:/any.host/admin"},
		{"g.test", "/all/x:y", 200, "one /x:y"},
		{"s.test", "/shop/a%20b", 200, "one /v2/a%20b"},
		{"s.test", "//shop/x", 200, "one /v2/x"},
		{"s.test", "/shop//x", 200, "one /v2/x"},
		{"s.test", "/./shop/x", 200, "one /v2/x"},
		{"s.test", "//x//shop", 200, "one //x//shop"},
		{"s.test", "/x/..;/shop", 400, "the path has"},
		{"s.test", "/x/..%3Ba=b/shop", 400, "the path has"},
		{"s.test", "/x/.;/shop", 400, "the path has"},
		{"s.test", "/x/;/..", 200, "one /x"},
		{"s.test", "/x;..", 200, "one /x;.."},
		{"s.test", "/..a;/.b;c", 200, "one /..a;/.b;c"},
		{"s.test", "/x%5C..%5Cshop", 400, "the path has"},
		{"s.test", `/x\y`, 200, "one /x"},
	} {
		s.get(t, port, c.host, c.path, c.status, c.want)
	}
	client := direct(nil)
	defer client.CloseIdleConnections()
	if answer, _ := ask(t, client, "GET", at(port, "//old/x?q"), "s.test", ""); answer.Header.Get("Location") != "http://s.test/new/x?q" {
		t.Errorf("redirected to %q", answer.Header.Get("Location"))
	}
}
