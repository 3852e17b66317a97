package dataplane

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// preflight answers a request with which a browser asks whether a page may make another one, and reports whether it was such a one.
func preflight(w http.ResponseWriter, req *http.Request, c *gateway.CORS) bool {
	method := req.Header.Get("Access-Control-Request-Method")
	if req.Method != http.MethodOptions || method == "" || req.Header.Get("Origin") == "" {
		return false
	}
	h := w.Header()
	h.Add("Vary", "Access-Control-Request-Method")
	h.Add("Vary", "Access-Control-Request-Headers")
	if allowOrigin(h, req, c) {
		methods := c.Methods
		if slices.Contains(methods, "*") {
			methods = []string{method}
		}
		if len(methods) == 0 {
			methods = []string{http.MethodGet, http.MethodHead, http.MethodPost} // which need no leave
		}
		h.Set("Access-Control-Allow-Methods", strings.Join(methods, ", "))
		headers := c.Headers
		if slices.Contains(headers, "*") {
			headers = req.Header.Values("Access-Control-Request-Headers")
		}
		if len(headers) > 0 {
			h.Set("Access-Control-Allow-Headers", strings.Join(headers, ", "))
		}
		if c.MaxAge > 0 {
			h.Set("Access-Control-Max-Age", strconv.Itoa(int(c.MaxAge.Seconds())))
		}
	}
	w.WriteHeader(http.StatusNoContent)
	return true
}

// allowOrigin adds what lets the origin of a request read the answer, if it may, in the place of what the backend says of it.
func allowOrigin(h http.Header, req *http.Request, c *gateway.CORS) bool {
	for _, name := range []string{"Allow-Origin", "Allow-Credentials", "Expose-Headers", "Allow-Methods", "Allow-Headers", "Max-Age"} {
		delete(h, "Access-Control-"+name)
	}
	h.Add("Vary", "Origin")
	origin := req.Header.Get("Origin")
	if origin == "" || !slices.ContainsFunc(c.Origins, func(allowed string) bool { return isOrigin(origin, allowed) }) {
		return false
	}
	h.Set("Access-Control-Allow-Origin", origin)
	if c.Credentials {
		h.Set("Access-Control-Allow-Credentials", "true")
	}
	if len(c.ExposeHeaders) > 0 {
		h.Set("Access-Control-Expose-Headers", strings.Join(c.ExposeHeaders, ", "))
	}
	return true
}

// isOrigin reports whether an origin is an allowed one: "*", one, or one with a * for any labels at the start of its host.
func isOrigin(origin, allowed string) bool {
	if allowed == "*" || strings.EqualFold(origin, allowed) {
		return true
	}
	scheme, suffix, ok := strings.Cut(strings.ToLower(allowed), "://*")
	if !ok {
		return false
	}
	u, err := url.Parse(strings.ToLower(origin))
	if err != nil || u.Scheme != scheme || u.Host == "" || u.User != nil || u.Path != "" || u.RawQuery != "" {
		return false
	}
	return len(u.Host) > len(suffix) && strings.HasSuffix(u.Host, suffix)
}
