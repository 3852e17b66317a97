package dataplane

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
	"github.com/coracle-dev/coracle/pkg/network/gateway/routes"
)

func TestRedirect(t *testing.T) {
	prefix := func(path string) *gateway.PathRewrite { return &gateway.PathRewrite{Prefix: true, Path: path} }
	for _, c := range []struct {
		url, matched string
		port         uint16
		to           gateway.Redirect
		want         string
	}{
		{"http://a.test/x?q=1", "/", 80, gateway.Redirect{Scheme: "https"}, "https://a.test/x?q=1"},
		{"http://a.test:8080/x", "/", 8080, gateway.Redirect{Host: "b.test"}, "http://b.test:8080/x"},
		{"http://a.test:8080/x", "/", 8080, gateway.Redirect{Scheme: "https"}, "https://a.test/x"},
		{"http://a.test/x", "/", 8080, gateway.Redirect{Port: 80}, "http://a.test/x"},
		{"https://a.test/x", "/", 443, gateway.Redirect{Port: 8443}, "https://a.test:8443/x"},
		{"https://a.test/x", "/", 443, gateway.Redirect{Scheme: "http", Port: 443}, "http://a.test:443/x"},
		{"http://[fd00::1]/x", "/", 80, gateway.Redirect{Scheme: "https"}, "https://[fd00::1]/x"},
		{"http://[fd00::1]/x", "/", 8080, gateway.Redirect{}, "http://[fd00::1]:8080/x"},
		{"http://a.test/x", "/", 80, gateway.Redirect{Path: &gateway.PathRewrite{Path: "/y z"}}, "http://a.test/y%20z"},
		{"http://a.test/old/p%2Fq?q", "/old/", 80, gateway.Redirect{Path: prefix("/new/")}, "http://a.test/new/p%2Fq?q"},
		{"http://a.test/old", "/old", 80, gateway.Redirect{Path: prefix("/")}, "http://a.test/"},
		{"http://a.test/old/x", "/old", 80, gateway.Redirect{Path: prefix("")}, "http://a.test/x"},
		{"http://a.test/%6fld/x", "/old", 80, gateway.Redirect{Path: prefix("/new")}, "http://a.test/new/x"},
		{"http://a.test/x", "/", 80, gateway.Redirect{Path: prefix("/n")}, "http://a.test/n/x"},
		{"http://a.test//evil.test/", "/", 80, gateway.Redirect{Path: prefix("/")}, "http://a.test//evil.test/"},
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, c.url, nil)
		route := &gateway.Route{Match: gateway.Match{Path: c.matched}, Filters: gateway.Filters{Redirect: &c.to}}
		if err := redirect(w, r, &forwarding{route: &routes.Route{Route: route}, url: r.URL, port: c.port}); err != nil {
			t.Fatal(err)
		}
		if got := w.Header().Get("Location"); got != c.want || w.Code != http.StatusFound {
			t.Errorf("%s: %d %s, want %s", c.url, w.Code, got, c.want)
		}
	}
}

func TestRewrite(t *testing.T) {
	for _, c := range []struct {
		path, matched string
		to            gateway.PathRewrite
		want          string
	}{
		{"/one/two?q=1", "/one", gateway.PathRewrite{Path: "/full"}, "/full?q=1"},
		{"/one/two", "/one", gateway.PathRewrite{Prefix: true, Path: "/"}, "/two"},
		{"/one/", "/one", gateway.PathRewrite{Prefix: true, Path: "/new"}, "/new/"},
		{"/one", "/one", gateway.PathRewrite{Prefix: true, Path: "/new/"}, "/new"},
		{"/one/%2e%2E/a%20b", "/one", gateway.PathRewrite{Prefix: true, Path: "/new"}, "/new/%2e%2E/a%20b"},
		{"/one/c", "/one", gateway.PathRewrite{Prefix: true, Path: "/a%20b"}, "/a%20b/c"},
		{"/one/c", "/one", gateway.PathRewrite{Prefix: true, Path: "/a b"}, "/a%20b/c"},
		{"/%6fne/c", "/one", gateway.PathRewrite{Prefix: true, Path: "/a%20b"}, "/a%20b/c"},
		{"/one/c", "/one", gateway.PathRewrite{Prefix: true, Path: "/100%"}, "/100%25/c"},
	} {
		u, _ := url.ParseRequestURI(c.path)
		rewritePath(u, &c.to, c.matched)
		if got := u.RequestURI(); got != c.want {
			t.Errorf("%s: %s, want %s", c.path, got, c.want)
		}
	}
}

func TestHeaders(t *testing.T) {
	r := &http.Request{Host: "a.test", Header: http.Header{"X-Set": {"1", "2"}, "X-Add": {"1"}, "X-Gone": {"1"}, "Connection": {"Upgrade"}}}
	applyToRequest(r, &gateway.Headers{
		Set:    []gateway.Header{{Name: "x-set", Value: "{http.request.host}"}, {Name: "content-length", Value: "7"}, {Name: "host", Value: "b.test"}},
		Add:    []gateway.Header{{Name: "x-add", Value: "2"}, {Name: "Transfer-Encoding", Value: "chunked"}},
		Remove: []string{"x-gone", "connection", "user-agent"},
	})
	want := http.Header{"X-Set": {"{http.request.host}"}, "X-Add": {"1", "2"}, "Connection": {"Upgrade"}, "User-Agent": {""}}
	if len(r.Header) != len(want) || r.Host != "b.test" {
		t.Errorf("%s %v", r.Host, r.Header)
	}
	for name := range want {
		if http.Header(r.Header).Values(name)[0] != want[name][0] || len(r.Header[name]) != len(want[name]) {
			t.Errorf("%s: %v", name, r.Header[name])
		}
	}
}

func TestCORS(t *testing.T) {
	c := &gateway.CORS{
		Origins: []string{"https://www.foo.com", "https://*.bar.com", "http://*:8080"}, Credentials: true, Methods: []string{"GET", "PUT"},
		Headers: []string{"x-1"}, ExposeHeaders: []string{"x-2", "x-3"}, MaxAge: time.Hour,
	}
	for origin, allowed := range map[string]bool{
		"https://www.foo.com": true, "https://WWW.foo.com": true, "https://www.foo.com.evil.test": false, "http://www.foo.com": false,
		"https://a.bar.com": true, "https://a.b.bar.com": true, "https://bar.com": false, "https://.bar.com": false, "https://evilbar.com": false, "http://a.bar.com": false,
		"https://evil.test/.bar.com": false, "https://evil.test?.bar.com": false, "https://u@a.bar.com": false, "https://a.bar.com:444": false,
		"http://any.test:8080": true, "http://any.test": false, "null": false,
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodOptions, "/", nil)
		r.Header = http.Header{"Origin": {origin}, "Access-Control-Request-Method": {"PUT"}, "Access-Control-Request-Headers": {"x-9"}}
		if !preflight(w, r, c) {
			t.Fatal("no preflight")
		}
		if got := w.Header().Get("Access-Control-Allow-Origin"); got != "" && got != origin || allowed != (got != "") || w.Header().Get("Vary") == "" || w.Code != http.StatusNoContent {
			t.Errorf("%s: %d %v", origin, w.Code, w.Header())
		}
		if allowed != (w.Header().Get("Access-Control-Max-Age") == "3600" && w.Header().Get("Access-Control-Allow-Methods") == "GET, PUT" &&
			w.Header().Get("Access-Control-Allow-Headers") == "x-1" && w.Header().Get("Access-Control-Allow-Credentials") == "true") {
			t.Errorf("%s: %v", origin, w.Header())
		}
	}
	any := &gateway.CORS{Origins: []string{"*"}, Methods: []string{"*"}, Headers: []string{"*"}}
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodOptions, "/", nil)
	if preflight(w, r, any) {
		t.Error("a request without an origin is no preflight")
	}
	r.Header = http.Header{"Origin": {"https://x.test"}, "Access-Control-Request-Method": {"PATCH"}, "Access-Control-Request-Headers": {"x-9"}}
	preflight(w, r, any)
	if h := w.Header(); h.Get("Access-Control-Allow-Methods") != "PATCH" || h.Get("Access-Control-Allow-Headers") != "x-9" || h.Get("Access-Control-Allow-Credentials") != "" {
		t.Errorf("%v", h)
	}
	h := http.Header{"Access-Control-Allow-Origin": {"*"}, "Access-Control-Allow-Credentials": {"true"}}
	r.Header.Set("Origin", "https://evil.test")
	if allowOrigin(h, r, c); len(h) != 1 {
		t.Errorf("what the backend allows: %v", h)
	}
}
