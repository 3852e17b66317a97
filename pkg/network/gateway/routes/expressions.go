package routes

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// Bounds of what regular expressions cost for a request. Many can be written such that each byte takes all of their steps, of some tens of ns each.
const (
	maxPath  = 4 << 10  // length in bytes of a path that expressions are tried on
	maxTries = 16 << 20 // product of the length of a text in bytes and the steps of all expressions that one namespace has for the host
	// maxQuick is the sum of such products above which a search goes on alone, some 50 ms: all searches that take long have one processor together.
	maxQuick = 2 << 20
)

// expression is a regular expression for something of requests. There is one of each.
type expression struct {
	*regexp.Regexp
	steps int
}

// compiler compiles each expression once, by what it is for and its text: that of a route with many hosts is in the configuration for each of them.
type compiler map[[2]string]*expression

func (c compiler) expression(of, text string) (*expression, error) {
	key := [2]string{of, text}
	if known := c[key]; known != nil {
		return known, nil
	}
	steps, err := gateway.ExpressionSteps(text)
	if err != nil {
		return nil, err
	}
	compiled, err := gateway.CompileExpression(text)
	if err != nil {
		return nil, err
	}
	c[key] = &expression{compiled, steps}
	return c[key], nil
}

// longestMatched returns the length of the longest text that the expressions of a host's routes are tried on: what one namespace has does not count for
// the routes of others.
func longestMatched(exact, prefix map[string][]*Route, matched []*Route) int {
	seen, steps, most := map[*expression]bool{}, map[string]int{}, 1
	add := func(r *Route, e *expression) {
		if e == nil || seen[e] {
			return
		}
		seen[e] = true
		_, name, _ := strings.Cut(r.Source, " ")
		namespace, _, _ := strings.Cut(name, "/")
		steps[namespace] += e.steps
		most = max(most, steps[namespace])
	}
	count := func(all []*Route) {
		for _, r := range all {
			add(r, r.path)
			for _, v := range r.headers {
				add(r, v.expression)
			}
			for _, v := range r.query {
				add(r, v.expression)
			}
		}
	}
	for _, byPath := range []map[string][]*Route{exact, prefix, {"": matched}} {
		for _, all := range byPath {
			count(all)
		}
	}
	return maxTries / most
}

// search is one for the route of a request.
type search struct {
	request *http.Request
	query   url.Values           // nil before it is needed
	known   map[*expression]bool // those that were tried, and whether they match
	longest int                  // length of a text that expressions of the host are tried on
	tries   int                  // the steps that may have been taken
	slow    chan struct{}        // of the table
	alone   bool                 // it holds slow
	tooLong bool                 // a text is longer: which route is for the request is not known
}

func (s *search) is(want value, text string) bool {
	if want.expression != nil {
		return s.matches(want.expression, text)
	}
	return text == want.Value.Value
}

func (s *search) matches(e *expression, text string) bool {
	known, tried := s.known[e]
	if tried {
		return known
	}
	if len(text) > s.longest {
		s.tooLong = true
		return false
	}
	if s.tries += len(text) * e.steps; s.tries > maxQuick && !s.goOnAlone() {
		s.tooLong = true
		return false
	}
	if s.known == nil {
		s.known = map[*expression]bool{}
	}
	s.known[e] = e.MatchString(text)
	return s.known[e]
}

// goOnAlone waits until no other search takes long. It returns false when the client does not wait any longer.
func (s *search) goOnAlone() bool {
	if s.alone {
		return true
	}
	select {
	case s.slow <- struct{}{}:
		s.alone = true
	case <-s.request.Context().Done():
	}
	return s.alone
}

func (s *search) end() {
	if s.alone {
		<-s.slow
	}
}
