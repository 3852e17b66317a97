package dataplane

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
	"github.com/coracle-dev/coracle/pkg/network/gateway/policy"
	"github.com/coracle-dev/coracle/pkg/network/gateway/routes"
)

// guarded serves a request of a route with a policy.
func (r router) guarded(w http.ResponseWriter, req *http.Request, f *forwarding, next caddyhttp.Handler) error {
	p := f.state.policies.Of(f.route.Policy)
	if p == nil {
		return f.unserved(w, req, http.StatusServiceUnavailable, "this route's policy is missing\n")
	}
	leave, instead := p.Enter(req)
	defer leave()
	if instead == nil && f.route.CORS != nil && preflight(w, req, f.route.CORS) {
		return nil
	}
	if instead == nil {
		instead = p.Admit(w, req)
	}
	if instead != nil {
		for name, values := range instead.Header {
			w.Header()[name] = values
		}
		return f.unserved(w, req, instead.Status, instead.Text)
	}
	f.policy = p
	if p.Affinity != nil {
		f.session, f.cookie = policy.Session(p.Affinity, req)
	}
	return r.serve(w, req, f, next)
}

// pick chooses the request's backend.
func (f *forwarding) pick() *gateway.Backend {
	if f.session != 0 {
		return f.route.PickFor(f.session, f.state.table)
	}
	return f.route.Pick()
}

// next returns the next address of the request's backend, besides those that were tried.
func (f *forwarding) next(tried []string) string {
	if f.session != 0 {
		return f.state.table.NextFor(f.backend.Endpoints, f.session, tried)
	}
	return f.state.table.Next(f.backend.Endpoints, tried)
}

// fall leads a request whose backend has no endpoint to the one for errors, and reports whether there is one.
func (f *forwarding) fall(req *http.Request) bool {
	if f.policy == nil || f.policy.Errors == nil || !f.state.table.Serves(f.policy.Errors.Backend.Endpoints) {
		return false
	}
	f.backend, f.fallen = &f.policy.Errors.Backend, true
	f.describe(req.Header, req, http.StatusServiceUnavailable)
	return true
}

// describe tells a backend for errors what has happened, as ingress-nginx does.
func (f *forwarding) describe(h http.Header, req *http.Request, status int) {
	h.Set("X-Code", strconv.Itoa(status))
	h.Set("X-Format", req.Header.Get("Accept"))
	h.Set("X-Original-Uri", f.uri)
	for _, one := range f.policy.Errors.Headers {
		h.Set(one.Name, one.Value)
	}
}

// page returns the answer of the backend for errors in place of one of the request's backend.
func (f *forwarding) page(req *http.Request, res *http.Response) *http.Response {
	if f.policy == nil || f.fallen || f.policy.Errors == nil || !slices.Contains(f.policy.Errors.Codes, res.StatusCode) {
		return res
	}
	to := &f.policy.Errors.Backend
	address := f.state.table.Next(to.Endpoints, nil)
	if address == "" {
		return res
	}
	way := f.state.transports.of(to)
	one, err := http.NewRequestWithContext(req.Context(), http.MethodGet, (&url.URL{Scheme: way.scheme, Host: address, Path: "/"}).String(), nil)
	if err != nil {
		return res
	}
	one.Host = f.host
	f.describe(one.Header, req, res.StatusCode)
	page, err := way.RoundTrip(one)
	if err != nil {
		return res
	}
	res.Body.Close()
	return page
}

// watched sends a request whose backend may not stall.
func (f *forwarding) watched(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	s := &stall{after: f.policy.Stall}
	s.timer = time.AfterFunc(s.after, func() { cancel(errTimeout) })
	one := req.WithContext(ctx)
	if req.Body != nil && req.Body != http.NoBody {
		one.Body = &sent{req.Body, s}
	}
	res, err := f.send(one)
	s.timer.Stop()
	switch {
	case err != nil:
		if context.Cause(ctx) == errTimeout {
			err = errTimeout
		}
		cancel(nil)
	case res.StatusCode != http.StatusSwitchingProtocols:
		res.Body = &received{closing{res.Body, func() { s.timer.Stop(); cancel(nil) }}, s}
	}
	return res, err
}

// stall ends a request when a backend neither sends nor takes anything. Its timer stands while the client is waited for.
type stall struct {
	timer *time.Timer
	after time.Duration
}

// sent is the body of a request.
type sent struct {
	io.ReadCloser
	stall *stall
}

func (s *sent) Read(p []byte) (int, error) {
	s.stall.timer.Stop()
	defer s.stall.timer.Reset(s.stall.after)
	return s.ReadCloser.Read(p)
}

// received is the body of an answer.
type received struct {
	closing
	stall *stall
}

func (r *received) Read(p []byte) (int, error) {
	r.stall.timer.Reset(r.stall.after)
	defer r.stall.timer.Stop()
	return r.ReadCloser.Read(p)
}

// sought returns a request as its route is looked up: without empty segments in its path, and without . and .., which a backend may take in another
// way than the lookup, and so come to a path that another route guards. Those with dots are forwarded in this way too.
func sought(req *http.Request) (lookup, forward *http.Request) {
	dots := strings.Contains(req.URL.Path, "/.")
	if !dots && !strings.Contains(req.URL.Path, "//") || !strings.HasPrefix(req.URL.Path, "/") {
		return req, req
	}
	u := *req.URL
	u.Path, u.RawPath = clean(req.URL.Path), ""
	lookup = req.WithContext(req.Context())
	lookup.URL = &u
	if dots && strings.ReplaceAll(u.Path, "/", "") != strings.ReplaceAll(req.URL.Path, "/", "") {
		return lookup, lookup
	}
	return lookup, req
}

// find looks the route of a request up, and returns the request as which it was found. Some backends drop parameters of a path's segments, so
// /admin;x comes to the route that /admin comes to, unless a route's own path has parameters. A WebSocket's CONNECT
// comes to the backend as GET.
func find(t *routes.Table, host string, req *http.Request) (routes.Found, *http.Request) {
	if req.Method == http.MethodConnect {
		req = req.WithContext(req.Context())
		req.Method = http.MethodGet
	}
	found := t.Find(connectionOf(req), host, req)
	if !strings.Contains(req.URL.Path, ";") || found.Route != nil && strings.Contains(found.Route.Path, ";") {
		return found, req
	}
	segments := strings.Split(req.URL.Path, "/")
	for i, segment := range segments {
		segments[i], _, _ = strings.Cut(segment, ";")
	}
	u := *req.URL
	u.Path, u.RawPath = clean(strings.Join(segments, "/")), ""
	bare := req.WithContext(req.Context())
	bare.URL = &u
	if other := t.Find(connectionOf(req), host, bare); other.Route != found.Route {
		return other, bare
	}
	return found, req
}

// clean returns a path without empty segments, . and .. A slash at its end stays.
func clean(of string) string {
	cleaned := path.Clean("/" + of)
	if cleaned != "/" && (strings.HasSuffix(of, "/") || strings.HasSuffix(of, "/.") || strings.HasSuffix(of, "/..")) {
		cleaned += "/"
	}
	return cleaned
}
