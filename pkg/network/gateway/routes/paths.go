package routes

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// Route is a route with what is made of it once.
type Route struct {
	*gateway.Route
	place   int // in the configuration
	path    *expression
	headers []value
	query   []value
	total   uint64 // of the backends' weights

	turn, mirrored atomic.Uint32
}

// value is what a header or a query parameter must be.
type value struct {
	gateway.Value
	expression *expression
}

func (c compiler) route(r *gateway.Route, place int) (*Route, error) {
	out := &Route{Route: r, place: place}
	var err error
	if r.Kind == gateway.Expression {
		if out.path, err = c.expression("", r.Path); err != nil {
			return nil, err
		}
	}
	if out.headers, err = c.values("header ", r.Headers, http.CanonicalHeaderKey); err != nil {
		return nil, err
	}
	if out.query, err = c.values("query ", r.Query, strings.Clone); err != nil {
		return nil, err
	}
	for _, b := range r.Backends {
		out.total += uint64(max(0, b.Weight))
	}
	out.turn.Store(startOfTurns())
	out.mirrored.Store(startOfTurns())
	return out, nil
}

func (c compiler) values(of string, in []gateway.Value, name func(string) string) (out []value, err error) {
	for _, v := range in {
		v.Name = name(v.Name)
		one := value{Value: v}
		if v.Expression {
			if one.expression, err = c.expression(of+v.Name, v.Value); err != nil {
				return nil, err
			}
		}
		out = append(out, one)
	}
	return out, nil
}

// matches reports whether a request is what the route wants besides host and path.
func (r *Route) matches(s *search) bool {
	req := s.request
	if r.Method != "" && r.Method != req.Method {
		return false
	}
	for _, want := range r.headers {
		got, ok := req.Header[want.Name]
		if want.Name == "Host" {
			got, ok = []string{req.Host}, true
		}
		if !ok || !s.is(want, strings.Join(got, ",")) {
			return false
		}
	}
	if len(r.query) > 0 && s.query == nil {
		s.query = req.URL.Query()
	}
	for _, want := range r.query {
		if got, ok := s.query[want.Name]; !ok || !s.is(want, got[0]) {
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
	matched       int // length of the longest text that expressions are tried on
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
	p.matched = longestMatched(p.exact, p.prefix, p.expressions)
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

// find returns the route of a request. When the search is too long the route is none.
func (p *paths) find(s *search) *Route {
	path := s.request.URL.Path
	s.longest = p.matched
	for _, r := range p.exact[path] {
		if r.matches(s) || s.tooLong {
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
			if r.matches(s) || s.tooLong {
				return r
			}
		}
	}
	if len(p.expressions) > 0 && len(path) > maxPath {
		s.tooLong = true
		return nil
	}
	for _, r := range p.expressions {
		if s.matches(r.path, path) && r.matches(s) || s.tooLong {
			return r
		}
	}
	return nil
}
