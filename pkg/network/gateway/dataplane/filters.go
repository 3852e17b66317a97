package dataplane

import (
	"cmp"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
	"github.com/coracle-dev/coracle/pkg/network/gateway/policy"
)

// applyHeaders changes headers.
func applyHeaders(h http.Header, changes *gateway.Headers) {
	if changes == nil {
		return
	}
	for _, c := range changes.Set {
		if name := http.CanonicalHeaderKey(c.Name); !ofConnection(name) {
			h[name] = []string{c.Value}
		}
	}
	for _, c := range changes.Add {
		if name := http.CanonicalHeaderKey(c.Name); !ofConnection(name) {
			h[name] = append(slices.Clip(h[name]), c.Value)
		}
	}
	for _, c := range changes.Remove {
		if name := http.CanonicalHeaderKey(c); !ofConnection(name) {
			delete(h, name)
		}
	}
}

// applyToRequest changes a request's headers, and its host if one of them is it.
func applyToRequest(req *http.Request, changes *gateway.Headers) {
	if changes == nil {
		return
	}
	applyHeaders(req.Header, changes)
	if host := req.Header["Host"]; len(host) > 0 {
		req.Host = host[0]
		delete(req.Header, "Host")
	}
	if _, ok := req.Header["User-Agent"]; !ok {
		req.Header["User-Agent"] = []string{""} // otherwise Go's client sends its own
	}
}

// ofConnection reports whether a header says how a message is framed, which a route has no say in.
func ofConnection(name string) bool {
	switch name {
	case "Connection", "Content-Length", "Transfer-Encoding", "Upgrade", "Trailer", "Te", "Keep-Alive", "Proxy-Connection":
		return true
	}
	return false
}

// redirect answers a request with another URL.
func redirect(w http.ResponseWriter, req *http.Request, f *forwarding) error {
	to, port, scheme := f.route.Redirect, f.port, policy.Scheme(req)
	switch {
	case to.Port != 0:
		port = to.Port
	case to.Scheme != "":
		port = 0
	}
	if to.Scheme != "" {
		scheme = strings.ToLower(to.Scheme)
	}
	host := to.Host
	if host == "" {
		host = hostOf(req.Host)
	}
	usual := scheme == "http" && port == 80 || scheme == "https" && port == 443
	switch {
	case port != 0 && !usual:
		host = net.JoinHostPort(host, strconv.Itoa(int(port)))
	case strings.Contains(host, ":"):
		host = "[" + host + "]"
	}
	location := *req.URL
	if to.Path != nil {
		location = *f.url
	}
	location.Scheme, location.Host = scheme, host
	rewritePath(&location, to.Path, f.route.Path)
	if !strings.HasPrefix(location.Path, "/") {
		location.Path, location.RawPath = "/", ""
	}
	w.Header().Set("Location", location.String())
	w.WriteHeader(cmp.Or(to.Status, http.StatusFound))
	return nil
}

// rewrite sets the path that a backend gets, if the route changes it, and reports whether it may: what a group of an expression has matched may
// become a .. behind a slash of the route's, and lead out of it.
func (f *forwarding) rewrite() bool {
	r := f.route.Rewrite
	if r == nil || r.Path == nil {
		return true
	}
	u := *f.url
	f.rewritten = &u
	if !r.Path.Groups {
		rewritePath(&u, r.Path, f.route.Path)
		return true
	}
	expanded := f.route.Expand(u.Path, r.Path.Path)
	u.Path, u.RawPath = clean(expanded), ""
	return !evasive(expanded) && !slices.ContainsFunc(strings.Split(expanded, "/"), func(s string) bool { return s == "." || s == ".." })
}

// rewritePath changes the path of a URL for which a route with the path matched was found.
func rewritePath(u *url.URL, to *gateway.PathRewrite, matched string) {
	if to == nil {
		return
	}
	if !to.Prefix {
		setPath(u, to.Path)
		return
	}
	prefix := strings.TrimRight(matched, "/")
	var with url.URL
	setPath(&with, strings.TrimRight(to.Path, "/"))
	if rest, ok := strings.CutPrefix(u.EscapedPath(), (&url.URL{Path: prefix}).EscapedPath()); ok { // so that what is escaped in the rest stays so
		if rest == "" && with.Path == "" {
			rest = "/"
		}
		setPath(u, with.EscapedPath()+rest)
		return
	}
	rest, _ := strings.CutPrefix(u.Path, prefix)
	if rest == "" && with.Path == "" {
		rest = "/"
	}
	u.Path, u.RawPath = with.Path+rest, ""
}

// setPath sets a path that may be escaped.
func setPath(u *url.URL, path string) {
	if plain, err := url.PathUnescape(path); err == nil {
		u.Path, u.RawPath = plain, path
		return
	}
	u.Path, u.RawPath = path, ""
}
