package gatewayapi

import (
	"cmp"
	"net/http"
	"strconv"
	"time"

	v1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

func number(i int) string { return strconv.Itoa(i) }

// filters translates the filters of a rule, or says which one is not supported: a rule without one of its filters would not be what is meant.
func (t *translation) filters(r *route, g *gatewayState, all []v1.HTTPRouteFilter) (out gateway.Filters, problem *fault) {
	for _, f := range all {
		switch {
		case f.Type == v1.HTTPRouteFilterRequestHeaderModifier && f.RequestHeaderModifier != nil:
			out.RequestHeaders = headers(f.RequestHeaderModifier)
		case f.Type == v1.HTTPRouteFilterResponseHeaderModifier && f.ResponseHeaderModifier != nil:
			out.ResponseHeaders = headers(f.ResponseHeaderModifier)
		case f.Type == v1.HTTPRouteFilterRequestRedirect && f.RequestRedirect != nil:
			out.Redirect = redirect(f.RequestRedirect)
		case f.Type == v1.HTTPRouteFilterURLRewrite && f.URLRewrite != nil:
			out.Rewrite = &gateway.Rewrite{Host: string(or(f.URLRewrite.Hostname, "")), Path: pathRewrite(f.URLRewrite.Path)}
		case f.Type == v1.HTTPRouteFilterRequestMirror && f.RequestMirror != nil:
			if m := t.mirror(r, g, f.RequestMirror); m.Backend.Endpoints != "" {
				out.Mirrors = append(out.Mirrors, m)
			}
		case f.Type == v1.HTTPRouteFilterCORS && f.CORS != nil:
			out.CORS = cors(f.CORS)
		default:
			return out, faulty(v1.RouteReasonUnsupportedValue, "filters of type %s are not supported", f.Type)
		}
	}
	return out, nil
}

func headers(f *v1.HTTPHeaderFilter) *gateway.Headers {
	out := &gateway.Headers{Remove: f.Remove}
	for _, h := range f.Set {
		out.Set = append(out.Set, gateway.Header{Name: string(h.Name), Value: h.Value})
	}
	for _, h := range f.Add {
		out.Add = append(out.Add, gateway.Header{Name: string(h.Name), Value: h.Value})
	}
	return out
}

func redirect(f *v1.HTTPRequestRedirectFilter) *gateway.Redirect {
	return &gateway.Redirect{
		Scheme: or(f.Scheme, ""), Host: string(or(f.Hostname, "")), Port: uint16(or(f.Port, 0)),
		Path: pathRewrite(f.Path), Status: or(f.StatusCode, http.StatusFound),
	}
}

func pathRewrite(m *v1.HTTPPathModifier) *gateway.PathRewrite {
	switch {
	case m == nil:
		return nil
	case m.Type == v1.PrefixMatchHTTPPathModifier:
		return &gateway.PathRewrite{Prefix: true, Path: or(m.ReplacePrefixMatch, "")}
	}
	return &gateway.PathRewrite{Path: or(m.ReplaceFullPath, "")}
}

func (t *translation) mirror(r *route, g *gatewayState, f *v1.HTTPRequestMirrorFilter) gateway.Mirror {
	out := gateway.Mirror{Backend: t.backend(r, g, f.BackendRef, nil)}
	switch {
	case f.Percent != nil:
		out.Numerator, out.Denominator = int(*f.Percent), 100
	case f.Fraction != nil:
		out.Numerator, out.Denominator = int(f.Fraction.Numerator), int(cmp.Or(or(f.Fraction.Denominator, 100), 100))
	}
	return out
}

func cors(f *v1.HTTPCORSFilter) *gateway.CORS {
	out := &gateway.CORS{Credentials: or(f.AllowCredentials, false), MaxAge: time.Duration(f.MaxAge) * time.Second}
	for _, o := range f.AllowOrigins {
		out.Origins = append(out.Origins, string(o))
	}
	for _, m := range f.AllowMethods {
		out.Methods = append(out.Methods, string(m))
	}
	for _, h := range f.AllowHeaders {
		out.Headers = append(out.Headers, string(h))
	}
	for _, h := range f.ExposeHeaders {
		out.ExposeHeaders = append(out.ExposeHeaders, string(h))
	}
	return out
}
