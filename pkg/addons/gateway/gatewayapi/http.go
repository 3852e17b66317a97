package gatewayapi

import (
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"time"

	v1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// httpRules translates the rules of an HTTPRoute.
func (t *translation) httpRules(r *route, g *gatewayState, rules []v1.HTTPRouteRule) (c compiled) {
	check := t.checked(r)
	for i, rule := range rules {
		filters, problem := t.filters(r, g, rule.Filters)
		out := gateway.Route{Filters: filters, Unserved: http.StatusInternalServerError}
		if rule.Timeouts != nil {
			out.Timeout, out.BackendTimeout = duration(rule.Timeouts.Request), duration(rule.Timeouts.BackendRequest)
		}
		if rule.Retry != nil {
			out.Retry = &gateway.Retry{Attempts: or(rule.Retry.Attempts, 1), Backoff: duration(rule.Retry.Backoff)}
			for _, code := range rule.Retry.Codes {
				out.Retry.Codes = append(out.Retry.Codes, int(code))
			}
		}
		if problem == nil && out.Redirect == nil {
			problem = t.httpBackends(r, g, &out, rule.BackendRefs)
		}
		addMatches(r, &c, i, out, problem, rule.Matches, func(m v1.HTTPRouteMatch) (gateway.Match, *fault) { return httpMatch(m, check) })
	}
	return c
}

// addMatches adds a route for each match of a rule. A rule without matches has one for everything. A rule that is refused answers what it matches with an error:
// without its filters another rule must not have it.
func addMatches[M any](r *route, c *compiled, rule int, out gateway.Route, refused *fault, matches []M, read func(M) (gateway.Match, *fault)) {
	if refused != nil {
		r.drop(refused.at(rule))
		out = gateway.Route{Unserved: out.Unserved}
	}
	if len(matches) == 0 {
		matches = make([]M, 1)
	}
	for _, m := range matches {
		match, problem := read(m)
		if problem != nil {
			r.drop(problem.at(rule))
			continue
		}
		out.Match = match
		c.routes = append(c.routes, out)
		c.served = c.served || refused == nil
	}
}

// at says which rule a fault is in.
func (f *fault) at(rule int) *fault {
	return &fault{f.reason, "rule " + number(rule) + ": " + f.message}
}

func (t *translation) httpBackends(r *route, g *gatewayState, out *gateway.Route, refs []v1.HTTPBackendRef) *fault {
	for _, ref := range refs {
		b := t.backend(r, g, ref.BackendObjectReference, ref.Weight)
		filters, problem := t.filters(r, g, ref.Filters)
		if problem != nil {
			return problem
		}
		if filters.Redirect != nil || filters.Rewrite != nil || filters.CORS != nil || len(filters.Mirrors) > 0 {
			return faulty(v1.RouteReasonUnsupportedValue, "filters of backends can change headers only")
		}
		b.RequestHeaders, b.ResponseHeaders = filters.RequestHeaders, filters.ResponseHeaders
		out.Backends = append(out.Backends, b)
	}
	return nil
}

func httpMatch(m v1.HTTPRouteMatch, check checker) (out gateway.Match, problem *fault) {
	out.Path = "/"
	if m.Path != nil {
		out.Path = or(m.Path.Value, "/")
		switch kind := or(m.Path.Type, v1.PathMatchPathPrefix); kind {
		case v1.PathMatchPathPrefix, v1.PathMatchExact:
			plain, err := url.PathUnescape(out.Path) // as those of requests are looked up, in which %2F, which the API refuses here, is a slash
			if err != nil {
				return out, faulty(v1.RouteReasonUnsupportedValue, "path %s: %v", out.Path, err)
			}
			if out.Path = plain; kind == v1.PathMatchExact {
				out.Kind = gateway.Exact
			}
		case v1.PathMatchRegularExpression:
			out.Kind = gateway.Expression
			if problem = check("", out.Path); problem != nil {
				return out, problem
			}
		default:
			return out, faulty(v1.RouteReasonUnsupportedValue, "paths cannot be compared by %s", kind)
		}
	}
	out.Method = string(or(m.Method, ""))
	for _, h := range m.Headers {
		isExpression := or(h.Type, v1.HeaderMatchExact) == v1.HeaderMatchRegularExpression
		if problem = addValue(&out.Headers, check, "header ", string(h.Name), h.Value, isExpression, textproto.CanonicalMIMEHeaderKey); problem != nil {
			return out, problem
		}
	}
	for _, q := range m.QueryParams {
		isExpression := or(q.Type, v1.QueryParamMatchExact) == v1.QueryParamMatchRegularExpression
		if problem = addValue(&out.Query, check, "query ", string(q.Name), q.Value, isExpression, strings.Clone); problem != nil {
			return out, problem
		}
	}
	return out, nil
}

// addValue adds what a header or query parameter must be. The API ignores further ones of the same name, in the form that canonical returns.
func addValue(to *[]gateway.Value, check checker, of, name, value string, isExpression bool, canonical func(string) string) *fault {
	if isExpression {
		if problem := check(of+canonical(name), value); problem != nil {
			return problem
		}
	}
	if !slices.ContainsFunc(*to, func(v gateway.Value) bool { return canonical(v.Name) == canonical(name) }) {
		*to = append(*to, gateway.Value{Name: name, Value: value, Expression: isExpression})
	}
	return nil
}

// checker returns why an expression for something of requests cannot be served.
type checker func(of, text string) *fault

// checked checks the expressions of a route.
func (t *translation) checked(r *route) checker {
	return func(of, text string) *fault {
		if err := t.expressions.Check(r.object.GetNamespace(), of, text); err != nil {
			return faulty(v1.RouteReasonUnsupportedValue, "%v", err)
		}
		return nil
	}
}

// duration reads one of the API's, which are a subset of Go's.
func duration(d *v1.Duration) time.Duration {
	out, err := time.ParseDuration(string(or(d, "0s")))
	if err != nil {
		return 0 // the API server lets none in that cannot be read
	}
	return out
}
