package routes

import (
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

func TestFind(t *testing.T) {
	route := func(host, path string, exact bool) gateway.Route {
		r := gateway.Route{Host: host, Match: gateway.Match{Path: path}, Backends: []gateway.Backend{{Endpoints: host + " " + path}}}
		if exact {
			r.Kind = gateway.Exact
		}
		return r
	}
	table := New([]gateway.Route{
		route("a.test", "/", false), route("a.test", "/foo", false), route("a.test", "/foo/bar/", false), route("a.test", "/foo", true),
		route("b.test", "/only", true), route("*.test", "/", false), route("", "/default", false), route("*.b.test", "/deep", false),
	}, nil, nil)
	for request, want := range map[[2]string]string{
		{"a.test", "/"}:             "a.test /",
		{"A.Test.", "/"}:            "a.test /",
		{"a.test", "/foobar"}:       "a.test /",
		{"a.test", "/Foo"}:          "a.test /",
		{"a.test", "/foo"}:          "a.test /foo",
		{"a.test", "/foo/"}:         "a.test /foo",
		{"a.test", "/foo/x/y"}:      "a.test /foo",
		{"a.test", "/foo/bar"}:      "a.test /foo/bar/",
		{"a.test", "/foo/bar/baz"}:  "a.test /foo/bar/",
		{"a.test", "/foo/barbaz"}:   "a.test /foo",
		{"b.test", "/only"}:         "b.test /only",
		{"b.test", "/only/"}:        "",
		{"c.test", "/x"}:            "*.test /",
		{"c.b.test", "/deep/x"}:     "*.b.test /deep",
		{"c.b.test", "/x"}:          "",
		{"test", "/x"}:              "",
		{"elsewhere", "/default/x"}: "  /default"[1:],
		{"10.0.0.1", "/default"}:    "  /default"[1:],
		{"", "*"}:                   "",

		{"a.test", strings.Repeat("/foo", 1<<14)}:           "a.test /foo",
		{"a.test", "/foo/bar" + strings.Repeat("/", 1<<14)}: "a.test /foo/bar/",
		{"a.test", "x/foo/bar/foo"}:                         "",
	} {
		got := ""
		if r, ok := table.Find(request[0], request[1]); ok {
			got = r.Backends[0].Endpoints
		}
		if got != want {
			t.Errorf("%q: %q, want %q", request, got, want)
		}
	}
}

// TestNext: addresses take turns, also over a change of the table, and one that was tried does not get the request again.
func TestNext(t *testing.T) {
	endpoints := gateway.Endpoints{"b": {"1", "2", "3"}}
	table := New(nil, endpoints, nil)
	seen := map[string]int{}
	for i := range 30 {
		if i%5 == 0 {
			table = New(nil, endpoints, table)
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

// FuzzFind: whatever a request names, it gets a route whose host and path it has.
func FuzzFind(f *testing.F) {
	for _, seed := range [][2]string{{"a.test", "/foo/bar"}, {"x.a.test.", "/foo"}, {"[::1]", "*"}, {"", "//foo//"}, {"..", ""}} {
		f.Add(seed[0], seed[1])
	}
	table := New([]gateway.Route{
		{Host: "a.test", Match: gateway.Match{Path: "/foo/"}}, {Host: "a.test", Match: gateway.Match{Path: "/exact", Kind: gateway.Exact}},
		{Host: "*.a.test", Match: gateway.Match{Path: "/"}}, {Match: gateway.Match{Path: "/default"}},
	}, nil, nil)
	f.Fuzz(func(t *testing.T, host, path string) {
		r, ok := table.Find(host, path)
		if !ok {
			return
		}
		name := strings.ToLower(strings.TrimSuffix(host, "."))
		if suffix, wild := strings.CutPrefix(r.Host, "*"); r.Host != "" && name != r.Host && (!wild || !strings.HasSuffix(name, suffix)) {
			t.Errorf("%q got the route of %q", host, r.Host)
		}
		prefix := strings.TrimRight(r.Path, "/")
		if rest, has := strings.CutPrefix(path, prefix); !has || r.Kind == gateway.Exact && path != r.Path || rest != "" && rest[0] != '/' {
			t.Errorf("%q got the route of %q", path, r.Path)
		}
	})
}
