package gatewayapi

import (
	"net/http"
	"net/textproto"
	"regexp"

	v1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// grpcRules translates the rules of a GRPCRoute: gRPC is HTTP/2 with paths of the form /SERVICE/METHOD.
func (t *translation) grpcRules(r *route, g *gatewayState, rules []v1.GRPCRouteRule) (c compiled) {
	check := t.checked(r)
	for i, rule := range rules {
		filters, problem := t.filters(r, g, httpFilters(rule.Filters))
		out := gateway.Route{Filters: filters, Unserved: http.StatusServiceUnavailable} // which clients of gRPC read as UNAVAILABLE
		var backends []v1.HTTPBackendRef
		for _, ref := range rule.BackendRefs {
			backends = append(backends, v1.HTTPBackendRef{BackendRef: ref.BackendRef, Filters: httpFilters(ref.Filters)})
		}
		if problem == nil {
			problem = t.httpBackends(r, g, &out, backends)
		}
		addMatches(r, &c, i, out, problem, rule.Matches, func(m v1.GRPCRouteMatch) (gateway.Match, *fault) { return grpcMatch(m, check) })
	}
	return c
}

// httpFilters returns filters of gRPC as those of HTTP, of which they are some.
func httpFilters(all []v1.GRPCRouteFilter) (same []v1.HTTPRouteFilter) {
	for _, f := range all {
		same = append(same, v1.HTTPRouteFilter{
			Type: v1.HTTPRouteFilterType(f.Type), RequestHeaderModifier: f.RequestHeaderModifier, ResponseHeaderModifier: f.ResponseHeaderModifier,
			RequestMirror: f.RequestMirror, ExtensionRef: f.ExtensionRef,
		})
	}
	return same
}

func grpcMatch(m v1.GRPCRouteMatch, check checker) (out gateway.Match, problem *fault) {
	out.Path = "/"
	if m.Method != nil {
		service, method := or(m.Method.Service, ""), or(m.Method.Method, "")
		isExpression := or(m.Method.Type, v1.GRPCMethodMatchExact) == v1.GRPCMethodMatchRegularExpression
		switch {
		case isExpression:
			out.Kind, out.Path = gateway.Expression, "/"+anyOr(service)+"/"+anyOr(method)
		case service != "" && method != "":
			out.Kind, out.Path = gateway.Exact, "/"+service+"/"+method
		case service != "":
			out.Path = "/" + service
		case method != "":
			out.Kind, out.Path = gateway.Expression, "/[^/]+/"+regexp.QuoteMeta(method)
		}
		if out.Kind == gateway.Expression {
			if problem = check("", out.Path); problem != nil {
				return out, problem
			}
		}
	}
	for _, h := range m.Headers {
		isExpression := or(h.Type, v1.GRPCHeaderMatchExact) == v1.GRPCHeaderMatchRegularExpression
		if problem = addValue(&out.Headers, check, "header ", string(h.Name), h.Value, isExpression, textproto.CanonicalMIMEHeaderKey); problem != nil {
			return out, problem
		}
	}
	return out, nil
}

func anyOr(expression string) string {
	if expression == "" {
		return "[^/]+"
	}
	return "(?:" + expression + ")"
}
