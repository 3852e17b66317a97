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
	for i, rule := range rules {
		filters, problem := t.grpcFilters(r, g, rule.Filters)
		if problem != nil {
			r.drop(problem.at(i))
			continue
		}
		out := gateway.Route{Filters: filters, Unserved: http.StatusServiceUnavailable} // which clients of gRPC read as UNAVAILABLE
		for _, ref := range rule.BackendRefs {
			b := t.backend(r, g, ref.BackendObjectReference, ref.Weight)
			var of gateway.Filters
			if of, problem = t.grpcFilters(r, g, ref.Filters); problem != nil {
				break
			}
			if len(of.Mirrors) > 0 {
				problem = faulty(v1.RouteReasonUnsupportedValue, "filters of backends can change headers only")
				break
			}
			b.RequestHeaders, b.ResponseHeaders = of.RequestHeaders, of.ResponseHeaders
			out.Backends = append(out.Backends, b)
		}
		if problem != nil {
			r.drop(problem.at(i))
			continue
		}
		matches := rule.Matches
		if len(matches) == 0 {
			matches = []v1.GRPCRouteMatch{{}}
		}
		for _, m := range matches {
			one := out
			if one.Match, problem = grpcMatch(m); problem != nil {
				r.drop(problem.at(i))
				continue
			}
			c.routes = append(c.routes, one)
		}
	}
	return c
}

// grpcFilters translates filters of gRPC, which are some of those of HTTP.
func (t *translation) grpcFilters(r *route, g *gatewayState, all []v1.GRPCRouteFilter) (gateway.Filters, *fault) {
	var same []v1.HTTPRouteFilter
	for _, f := range all {
		same = append(same, v1.HTTPRouteFilter{
			Type: v1.HTTPRouteFilterType(f.Type), RequestHeaderModifier: f.RequestHeaderModifier, ResponseHeaderModifier: f.ResponseHeaderModifier,
			RequestMirror: f.RequestMirror, ExtensionRef: f.ExtensionRef,
		})
	}
	return t.filters(r, g, same)
}

func grpcMatch(m v1.GRPCRouteMatch) (out gateway.Match, problem *fault) {
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
		if problem = expression(out.Path); isExpression && problem != nil {
			return out, problem
		}
	}
	named := map[string]bool{}
	for _, h := range m.Headers {
		value, problem := valueOf(string(h.Name), h.Value, or(h.Type, v1.GRPCHeaderMatchExact) == v1.GRPCHeaderMatchRegularExpression)
		if problem != nil {
			return out, problem
		}
		if key := textproto.CanonicalMIMEHeaderKey(value.Name); !named[key] {
			named[key] = true
			out.Headers = append(out.Headers, value)
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
