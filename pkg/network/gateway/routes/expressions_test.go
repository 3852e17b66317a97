package routes

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// TestLongTexts: a text on which the regular expressions of a host could take long is not tried on them, and nothing else gets its request.
func TestLongTexts(t *testing.T) {
	of := func(source, host string, m gateway.Match) gateway.Route {
		r := route(host, m)
		r.Source = source
		return r
	}
	var all []gateway.Route
	for n := range 4 { // the most that a namespace may have
		all = append(all, of("Ingress evil/a", "slow.test", gateway.Match{Path: fmt.Sprintf("/%d(?:%s)*", n, strings.Repeat("(x?){450}", 3)), Kind: gateway.Expression}))
	}
	for n := range 1000 {
		header := []gateway.Value{{Name: "x-n", Value: fmt.Sprint(n)}}
		all = append(all, of("HTTPRoute shop/a", "many.test", gateway.Match{Path: "/[a-z]+/.*", Kind: gateway.Expression, Headers: header}))
	}
	all = append(all, of("Ingress shop/a", "many.test", gateway.Match{Path: "/plain"}), of("Ingress shop/b", "slow.test", gateway.Match{Path: "/x*", Kind: gateway.Expression}),
		of("Ingress shop/c", "cookie.test", gateway.Match{Path: "/", Headers: []gateway.Value{{Name: "Cookie", Value: "(?s:.*)a=1(?s:.*)", Expression: true}}}), route("*.test", gateway.Match{Path: "/"}))
	table := table(false, all...)
	for _, c := range []struct {
		host, path, cookie string
		want               string // the path of the route
		tooLong            bool
	}{
		{host: "slow.test", path: "/" + strings.Repeat("x", 300), want: "/x*"},
		{host: "slow.test", path: "/" + strings.Repeat("x", 4000), tooLong: true},
		{host: "many.test", path: "/a/" + strings.Repeat("x", 4000), want: "/"},
		{host: "many.test", path: "/a/" + strings.Repeat("x", 4096), tooLong: true},
		{host: "many.test", path: "/plain/" + strings.Repeat("x", 60000), want: "/plain"},
		{host: "other.test", path: "/" + strings.Repeat("x", 60000), want: "/"},
		{host: "cookie.test", path: "/" + strings.Repeat("x", 60000), cookie: strings.Repeat("b=2; ", 2000) + "a=1", want: "/"},
	} {
		r := request(c.path)
		if c.cookie != "" {
			r.Header.Set("Cookie", c.cookie)
		}
		found := table.Find(Connection{Local: local}, c.host, r)
		if found.TooLong != c.tooLong || (found.Route == nil) != (c.want == "") || found.Route != nil && found.Route.Path != c.want {
			t.Errorf("%s, a path of %d bytes: %+v, want %q, too long %v", c.host, len(c.path), found, c.want, c.tooLong)
		}
	}
	s := &search{request: request("/a/b")}
	table.sites[place{port: 80}].listeners[""][0].find("many.test", s)
	if len(s.known) != 1 {
		t.Errorf("%d expressions are tried", len(s.known))
	}
}

// TestSlowSearches: searches that take long wait for each other, until their clients go, and no others do.
func TestSlowSearches(t *testing.T) {
	var all []gateway.Route
	for n := range 4 {
		all = append(all, route("slow.test", gateway.Match{Path: fmt.Sprintf("/%d(?:%s)*", n, strings.Repeat("(x?){450}", 3)), Kind: gateway.Expression}))
	}
	table := table(false, append(all, route("slow.test", gateway.Match{Path: "/x*", Kind: gateway.Expression}))...).With(nil, nil)
	long := request("/" + strings.Repeat("x", 900))
	find := func(ctx context.Context, path string) Found {
		r := request(path).WithContext(ctx)
		return table.Find(Connection{Local: local}, "slow.test", r)
	}
	if found := find(t.Context(), long.URL.Path); found.Route == nil {
		t.Errorf("alone: %+v", found)
	}
	table.slow <- struct{}{} // another one takes long
	gone, leave := context.WithCancel(t.Context())
	leave()
	if found := find(gone, long.URL.Path); !found.TooLong {
		t.Errorf("beside another: %+v", found)
	}
	if found := find(gone, "/xx"); found.Route == nil {
		t.Errorf("a quick one beside one that takes long: %+v", found)
	}
	ended := make(chan Found)
	go func() { ended <- find(t.Context(), long.URL.Path) }()
	<-table.slow
	if found := <-ended; found.Route == nil {
		t.Errorf("after another: %+v", found)
	}
	if len(table.slow) != 0 {
		t.Error("a search that has ended keeps others waiting")
	}
}
