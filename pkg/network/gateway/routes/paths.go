package routes

import (
	"cmp"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// Route is a route with what is made of it once.
type Route struct {
	*gateway.Route
	place   int // in the configuration
	path    *regexp.Regexp
	headers []value
	query   []value
	total   uint64 // of the backends' weights

	turn, mirrored atomic.Uint32
}

// value is what a header or a query parameter must be.
type value struct {
	gateway.Value
	expression *regexp.Regexp
}

// compiler compiles each expression once: that of a route with many hosts is in the configuration for each of them.
type compiler map[string]*regexp.Regexp

func (c compiler) expression(text string) (*regexp.Regexp, error) {
	if known := c[text]; known != nil {
		return known, nil
	}
	compiled, err := gateway.CompileExpression(text)
	if err == nil {
		c[text] = compiled
	}
	return compiled, err
}

func (c compiler) route(r *gateway.Route, place int) (*Route, error) {
	out := &Route{Route: r, place: place}
	var err error
	if r.Kind == gateway.Expression {
		if out.path, err = c.expression(r.Path); err != nil {
			return nil, err
		}
	}
	if out.headers, err = c.values(r.Headers, http.CanonicalHeaderKey); err != nil {
		return nil, err
	}
	if out.query, err = c.values(r.Query, strings.Clone); err != nil {
		return nil, err
	}
	for _, b := range r.Backends {
		out.total += uint64(max(0, b.Weight))
	}
	out.turn.Store(startOfTurns())
	out.mirrored.Store(startOfTurns())
	return out, nil
}

func (c compiler) values(in []gateway.Value, name func(string) string) (out []value, err error) {
	for _, v := range in {
		v.Name = name(v.Name)
		one := value{Value: v}
		if v.Expression {
			if one.expression, err = c.expression(v.Value); err != nil {
				return nil, err
			}
		}
		out = append(out, one)
	}
	return out, nil
}

func (v value) is(text string) bool {
	if v.expression != nil {
		return v.expression.MatchString(text)
	}
	return text == v.Value.Value
}

// matches reports whether a request is what the route wants besides host and path. It parses the query into parsed if it needs it.
func (r *Route) matches(req *http.Request, parsed *url.Values) bool {
	if r.Method != "" && r.Method != req.Method {
		return false
	}
	for _, want := range r.headers {
		got, ok := req.Header[want.Name]
		if want.Name == "Host" {
			got, ok = []string{req.Host}, true
		}
		if !ok || !want.is(strings.Join(got, ",")) {
			return false
		}
	}
	if len(r.query) > 0 && *parsed == nil {
		*parsed = req.URL.Query()
	}
	for _, want := range r.query {
		if got, ok := (*parsed)[want.Name]; !ok || !want.is(got[0]) {
			return false
		}
	}
	return true
}

// paths are the routes of one host, those of a path in the order in which they are tried.
type paths struct {
	exact, prefix map[string][]*Route
	expressions   []*Route
	longest       int // length of a prefix
}

func (p *paths) add(r *Route) {
	switch r.Kind {
	case gateway.Exact:
		p.exact[r.Path] = append(p.exact[r.Path], r)
	case gateway.Expression:
		p.expressions = append(p.expressions, r)
	default:
		prefix := strings.TrimRight(r.Path, "/")
		p.prefix[prefix] = append(p.prefix[prefix], r)
		p.longest = max(p.longest, len(prefix))
	}
}

func (p *paths) sort() {
	for _, routes := range p.exact {
		slices.SortFunc(routes, order)
	}
	for _, routes := range p.prefix {
		slices.SortFunc(routes, order)
	}
	slices.SortFunc(p.expressions, order)
}

// order is what decides between routes whose paths match in the same way.
func order(a, b *Route) int {
	methods := func(r *Route) int { return min(1, len(r.Method)) }
	paths := 0
	if a.path != nil && b.path != nil {
		paths = cmp.Or(b.Length, len(b.Path)) - cmp.Or(a.Length, len(a.Path))
	}
	return cmp.Or(paths, methods(b)-methods(a), len(b.headers)-len(a.headers), len(b.query)-len(a.query), a.place-b.place)
}

func (p *paths) find(req *http.Request) *Route {
	var query url.Values
	path := req.URL.Path
	for _, r := range p.exact[path] {
		if r.matches(req, &query) {
			return r
		}
	}
	prefix := strings.TrimRight(path, "/")
	if len(prefix) > p.longest { // whatever the length of a request's path, the loop is short
		prefix = prefix[:p.longest+1]
		prefix = prefix[:max(0, strings.LastIndexByte(prefix, '/'))]
	}
	for end := len(prefix); end >= 0 && (path == "" || path[0] == '/'); end = strings.LastIndexByte(prefix[:end], '/') {
		for _, r := range p.prefix[prefix[:end]] {
			if r.matches(req, &query) {
				return r
			}
		}
	}
	for _, r := range p.expressions {
		if r.path.MatchString(path) && r.matches(req, &query) {
			return r
		}
	}
	return nil
}
