package routes

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

var local = netip.MustParseAddrPort("10.0.0.1:80")

// table has one listener for all hosts.
func table(apart bool, of ...gateway.Route) *Table {
	for i := range of {
		of[i].Listeners = []string{"l"}
	}
	return New(gateway.Config{Listeners: []gateway.Listener{{Name: "l", Port: 80, Protocol: gateway.HTTP, HostsApart: apart}}, Routes: of}, nil, nil)
}

func route(host string, match gateway.Match) gateway.Route {
	return gateway.Route{Host: host, Match: match}
}

func request(path string) *http.Request {
	path, query, _ := strings.Cut(path, "?")
	return &http.Request{Method: http.MethodGet, Host: "h.test", URL: &url.URL{Path: path, RawQuery: query}, Header: http.Header{}}
}

// find returns the host and the path of what serves a request.
func (t *Table) find(host string, r *http.Request) string {
	found := t.Find(Connection{Local: local}, host, r)
	if found.Route == nil {
		return ""
	}
	return found.Route.Host + " " + found.Route.Path
}

func TestFind(t *testing.T) {
	prefix := func(host, path string) gateway.Route { return route(host, gateway.Match{Path: path}) }
	exact := func(host, path string) gateway.Route {
		return route(host, gateway.Match{Path: path, Kind: gateway.Exact})
	}
	of := []gateway.Route{
		prefix("a.test", "/"), prefix("a.test", "/foo"), prefix("a.test", "/foo/bar/"), exact("a.test", "/foo"),
		exact("b.test", "/only"), prefix("*.test", "/"), prefix("", "/default"), prefix("*.b.test", "/deep"),
	}
	apart, together := table(true, of...), table(false, of...)
	for request_, want := range map[[2]string][2]string{
		{"a.test", "/"}:             {"a.test /"},
		{"A.Test.", "/"}:            {"a.test /"},
		{"a.test", "/foobar"}:       {"a.test /"},
		{"a.test", "/Foo"}:          {"a.test /"},
		{"a.test", "/foo"}:          {"a.test /foo"},
		{"a.test", "/foo/"}:         {"a.test /foo"},
		{"a.test", "/foo/x/y"}:      {"a.test /foo"},
		{"a.test", "/foo/bar"}:      {"a.test /foo/bar/"},
		{"a.test", "/foo/bar/baz"}:  {"a.test /foo/bar/"},
		{"a.test", "/foo/barbaz"}:   {"a.test /foo"},
		{"b.test", "/only"}:         {"b.test /only"},
		{"b.test", "/only/"}:        {"", "*.test /"},
		{"c.test", "/x"}:            {"*.test /"},
		{"c.b.test", "/deep/x"}:     {"*.b.test /deep"},
		{"c.b.test", "/x"}:          {"", "*.test /"},
		{"c.d.test", "/x"}:          {"", "*.test /"},
		{"d.c.b.test", "/deep"}:     {"", "*.b.test /deep"},
		{"test", "/x"}:              {""},
		{"elsewhere", "/default/x"}: {"  /default"[1:]},
		{"10.0.0.1", "/default"}:    {"  /default"[1:]},
		{"", "*"}:                   {""},
		{".test", "/"}:              {""},
		{"*.test", "/"}:             {""},

		{"a.test", strings.Repeat("/foo", 1<<14)}:           {"a.test /foo"},
		{"a.test", "/foo/bar" + strings.Repeat("/", 1<<14)}: {"a.test /foo/bar/"},
		{"a.test", "x/foo/bar/foo"}:                         {"", "*.test /"}, // which no path of a request is
		{strings.Repeat("a.", 1<<14) + "test", "/default"}:  {"  /default"[1:]},
	} {
		if want[1] == "" || request_[1][0] == 'x' {
			want[1] = want[0]
		}
		if got := apart.find(request_[0], request(request_[1])); got != want[0] {
			t.Errorf("hosts apart: %q: %q, want %q", request_, got, want[0])
		}
		if got := together.find(request_[0], request(request_[1])); got != want[1] {
			t.Errorf("%q: %q, want %q", request_, got, want[1])
		}
	}
}

// TestOrder: of routes that match, the one that the Gateway API says serves the request.
func TestOrder(t *testing.T) {
	header, other := []gateway.Value{{Name: "x-a", Value: "1"}}, []gateway.Value{{Name: "X-A", Value: "1"}, {Name: "x-b", Value: "b+", Expression: true}}
	for name, of := range map[string]struct {
		routes []gateway.Match
		want   int
	}{
		"exact before longer":      {[]gateway.Match{{Path: "/a/b", Kind: gateway.Expression}, {Path: "/a"}, {Path: "/a/b"}, {Path: "/a/b", Kind: gateway.Exact}}, 3},
		"prefix before expression": {[]gateway.Match{{Path: "/a/b|/never/so/long", Kind: gateway.Expression}, {Path: "/"}}, 1},
		"longest expression":       {[]gateway.Match{{Path: "/a.*", Kind: gateway.Expression}, {Path: "/a/[b]", Kind: gateway.Expression}}, 1},
		"method before headers":    {[]gateway.Match{{Path: "/a", Headers: other}, {Path: "/a", Method: "GET"}}, 1},
		"most headers":             {[]gateway.Match{{Path: "/a", Headers: header}, {Path: "/a", Headers: other}}, 1},
		"headers before query":     {[]gateway.Match{{Path: "/a", Query: []gateway.Value{{Name: "q", Value: "1"}, {Name: "r", Value: ".*", Expression: true}}}, {Path: "/a", Headers: header}}, 1},
		"query":                    {[]gateway.Match{{Path: "/a"}, {Path: "/a", Query: []gateway.Value{{Name: "q", Value: "1"}}}}, 1},
		"the first":                {[]gateway.Match{{Path: "/a"}, {Path: "/a"}}, 0},
		"another method":           {[]gateway.Match{{Path: "/a", Method: "POST"}, {Path: "/a"}}, 1},
		"another header":           {[]gateway.Match{{Path: "/a", Headers: []gateway.Value{{Name: "x-b", Value: "b", Expression: true}}}, {Path: "/"}}, 1},
		"another query":            {[]gateway.Match{{Path: "/a", Query: []gateway.Value{{Name: "q", Value: "2"}}}, {Path: "/"}}, 1},
		"a huge expression":        {[]gateway.Match{{Path: "/.*" + strings.Repeat("(x?){900}", 6), Kind: gateway.Expression}, {Path: "/a.*", Kind: gateway.Expression}}, 1},
		"a bad expression":         {[]gateway.Match{{Path: "/a(", Kind: gateway.Expression}, {Path: "a)|(b", Kind: gateway.Expression}, {Path: "/"}}, 2},
		"the host as a header":     {[]gateway.Match{{Path: "/a"}, {Path: "/a", Headers: []gateway.Value{{Name: "host", Value: "h.test"}}}}, 1},
	} {
		var routes []gateway.Route
		for _, m := range of.routes {
			routes = append(routes, route("", m))
		}
		r := request("/a/b?q=1&q=2&r=x")
		r.Header = http.Header{"X-A": {"1"}, "X-B": {"bb"}}
		found := table(false, routes...).Find(Connection{Local: local}, "h.test", r)
		if found.Route == nil || found.Route.place != of.want {
			t.Errorf("%s: %+v, want route %d", name, found.Route, of.want)
		}
	}
}

// TestListeners: the address and the most specific host select the listener, and no other serves the request.
func TestListeners(t *testing.T) {
	listener := func(name, host string, protocol gateway.Protocol, addresses ...string) gateway.Listener {
		return gateway.Listener{Name: name, Host: host, Port: 80, Protocol: protocol, Addresses: addresses}
	}
	wanting := listener("wanting", "s.test", gateway.HTTPS)
	wanting.ClientAuthorities = "some"
	config := gateway.Config{Listeners: []gateway.Listener{
		listener("all", "", gateway.HTTP), listener("wild", "*.test", gateway.HTTP), listener("name", "a.test", gateway.HTTP), listener("same", "a.test", gateway.HTTP),
		listener("own", "", gateway.HTTP, "10.0.0.9", "fd00::9"), listener("tls", "", gateway.HTTPS), listener("tls-a", "*.a.test", gateway.HTTPS),
		listener("open", "s.test", gateway.HTTPS), wanting,
	}}
	for _, l := range config.Listeners {
		path := "/" + l.Name
		if l.Name == "all" || l.Name == "own" || l.Name == "tls" {
			path = "/"
		}
		config.Routes = append(config.Routes, gateway.Route{Listeners: []string{l.Name}, Match: gateway.Match{Path: path}})
	}
	table := New(config, nil, nil)
	for _, c := range []struct {
		local, name, host, path, want string
	}{
		{"10.0.0.1:80", "", "elsewhere", "/x", "all"},
		{"[::ffff:10.0.0.1]:80", "", "elsewhere", "/x", "all"},
		{"10.0.0.1:81", "", "elsewhere", "/x", ""},
		{"10.0.0.1:80", "", "b.test", "/wild", "wild"},
		{"10.0.0.1:80", "", "x.y.test", "/wild", "wild"},
		{"10.0.0.1:80", "", "b.test", "/x", ""}, // which the one for all hosts would serve
		{"10.0.0.1:80", "", "a.test", "/name", "name"},
		{"10.0.0.1:80", "", "a.test", "/same", "same"},
		{"10.0.0.1:80", "", "a.test", "/wild", ""},
		{"10.0.0.9:80", "", "a.test", "/name", "own"},
		{"[fd00::9]:80", "", "b.test", "/wild", "own"},
		{"10.0.0.1:80", "a.test", "A.test", "/", "tls"},
		{"10.0.0.1:80", "b.test", "a.test", "/", "tls"},
		{"10.0.0.1:80", "x.a.test", "y.x.a.test", "/tls-a", "tls-a"},
		{"10.0.0.1:80", "x.a.test", "a.test", "/", "misdirected"},
		{"10.0.0.1:80", "", "x.a.test", "/tls-a", "misdirected"},
		{"10.0.0.1:80", "s.test", "s.test", "/open", "open"},
		{"10.0.0.1:80", "s.test", "s.test", "/wanting", ""}, // the handshake did not ask for a certificate
	} {
		secure := c.name != "" || c.path == "/tls-a"
		found := table.Find(Connection{Local: netip.MustParseAddrPort(c.local), Secure: secure, Name: c.name}, c.host, request(c.path))
		got := ""
		if found.Misdirected {
			got = "misdirected"
		} else if found.Route != nil {
			got = found.Listener.Name
		}
		if got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// TestNext: addresses take turns, also over a change of the table, and one that was tried does not get the request again.
func TestNext(t *testing.T) {
	endpoints := gateway.Endpoints{"b": {"1", "2", "3"}}
	table := New(gateway.Config{}, endpoints, nil)
	seen := map[string]int{}
	for i := range 30 {
		switch i % 10 {
		case 5:
			table = New(gateway.Config{}, endpoints, table)
		case 9:
			table = table.With(endpoints, table)
		}
		seen[table.Next("b", nil)]++
	}
	if seen["1"] != 10 || seen["2"] != 10 || seen["3"] != 10 {
		t.Errorf("%v", seen)
	}
	for range 3 {
		if got := table.Next("b", []string{"1", "3"}); got != "2" {
			t.Errorf("%q after the others were tried", got)
		}
	}
	if got := table.Next("b", []string{"1", "2", "3"}) + table.Next("unknown", nil); got != "" {
		t.Errorf("%q when all were tried", got)
	}
}

// TestPick: any 100 requests in a row are shared as the weights say, within 3; the same holds for mirrors.
func TestPick(t *testing.T) {
	r := route("", gateway.Match{Path: "/"})
	r.Backends = []gateway.Backend{{Endpoints: "a", Weight: 70}, {Endpoints: "none", Weight: 0}, {Endpoints: "b", Weight: 30}}
	r.Mirrors = []gateway.Mirror{{Backend: gateway.Backend{Endpoints: "all"}}, {Backend: gateway.Backend{Endpoints: "some"}, Numerator: 1, Denominator: 5}, {Denominator: 9}}
	of := table(false, r).Find(Connection{Local: local}, "", request("/")).Route
	for range 20 {
		seen := map[string]int{}
		for range 100 {
			seen[of.Pick().Endpoints]++
			for b := range of.Mirrored() {
				seen[b.Endpoints]++
			}
		}
		if a, some := seen["a"], seen["some"]; a < 67 || a > 73 || seen["b"] != 100-a || seen["none"] != 0 || seen["all"] != 100 || some < 17 || some > 23 || seen[""] != 0 {
			t.Errorf("%v", seen)
		}
	}
	for _, none := range [][]gateway.Backend{nil, {{Endpoints: "a"}}} {
		r.Backends = none
		if got := table(false, r).Find(Connection{Local: local}, "", request("/")).Route.Pick(); got != nil {
			t.Errorf("%v of %v", got, none)
		}
	}
}

// FuzzFind: whatever a request names, it gets a route whose host and path it has.
func FuzzFind(f *testing.F) {
	for _, seed := range [][2]string{{"a.test", "/foo/bar"}, {"x.a.test.", "/foo"}, {"[::1]", "*"}, {"", "//foo//"}, {"..", ""}, {"x.y.a.test", "/xx"}} {
		f.Add(seed[0], seed[1])
	}
	of := []gateway.Route{
		route("a.test", gateway.Match{Path: "/foo/"}), route("a.test", gateway.Match{Path: "/exact", Kind: gateway.Exact}), route("*.a.test", gateway.Match{Path: "/"}),
		route("", gateway.Match{Path: "/default"}), route("", gateway.Match{Path: "/x+", Kind: gateway.Expression}),
	}
	apart, together := table(true, of...), table(false, of...)
	f.Fuzz(func(t *testing.T, host, path string) {
		for _, table := range []*Table{apart, together} {
			r := table.Find(Connection{Local: local}, host, &http.Request{URL: &url.URL{Path: path}}).Route
			if r == nil {
				continue
			}
			name := strings.ToLower(strings.TrimSuffix(host, "."))
			if suffix, wild := strings.CutPrefix(r.Host, "*"); r.Host != "" && name != r.Host && (!wild || !strings.HasSuffix(name, suffix)) {
				t.Errorf("%q got the route of %q", host, r.Host)
			}
			prefix := strings.TrimRight(r.Path, "/")
			if rest, has := strings.CutPrefix(path, prefix); r.Kind != gateway.Expression && (!has || r.Kind == gateway.Exact && path != r.Path || rest != "" && rest[0] != '/') {
				t.Errorf("%q got the route of %q", path, r.Path)
			}
		}
	})
}

// BenchmarkFind looks up requests among 10,000 routes of 2,000 hosts.
func BenchmarkFind(b *testing.B) {
	var of []gateway.Route
	for i := range 10_000 {
		of = append(of, route(fmt.Sprintf("host-%d.example.test", i/5), gateway.Match{Path: fmt.Sprintf("/api/v%d", i%5)}))
	}
	table := table(false, of...)
	r := request("/api/v3/things/17/parts")
	c := Connection{Local: local, Name: "host-1777.example.test"}
	b.ReportAllocs()
	for b.Loop() {
		if table.Find(c, "host-1777.example.test", r).Route == nil {
			b.Fatal("no route")
		}
	}
}

// BenchmarkNew makes the table of 10,000 routes.
func BenchmarkNew(b *testing.B) {
	config := gateway.Config{Listeners: []gateway.Listener{{Name: "l", Port: 80, Protocol: gateway.HTTP}}}
	for i := range 10_000 {
		r := route(fmt.Sprintf("host-%d.example.test", i/5), gateway.Match{Path: fmt.Sprintf("/api/v%d", i%5)})
		r.Listeners = []string{"l"}
		config.Routes = append(config.Routes, r)
	}
	for b.Loop() {
		New(config, nil, nil)
	}
}
