package dataplane

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
	"github.com/coracle-dev/coracle/pkg/network/gateway/policy"
	"github.com/coracle-dev/coracle/pkg/network/gateway/routes"
)

// state is what requests are served with. It does not change: a change of routes or endpoints makes another one.
type state struct {
	table      *routes.Table
	transports *transports
	policies   *policy.Set
	logged     bool // requests are
}

// forwarding is what a request's context has of its route, for our transport.
type forwarding struct {
	state   *state
	route   *routes.Route
	backend *gateway.Backend
	// rewritten is the URL for the backend; nil means that of the request.
	rewritten *url.URL

	host   string   // for which the route was found, and the URL
	url    *url.URL // with the path as cleaned
	port   uint16   // of the listener
	uri    string   // that the client has asked for
	timer  *time.Timer
	memory *memory // for the body, of which so many bytes are kept
	kept   int

	policy  *policy.Policy // nil if the route has none
	session uint64         // of the client, if that is to get to the same endpoint again; or 0
	cookie  *http.Cookie   // that the answer sets, or nil
	fallen  bool           // to the backend for errors
}

// forwardingVar is the variable of Caddy's for it.
const forwardingVar = "coracle.forwarding"

// router is the handler of Caddy's that finds the route of a request. Caddy's own matchers would look at one route after the other, ignore
// the case of paths, and expand placeholders in them, such as {file./config.json}.
type router struct{ serving *serving }

// CaddyModule implements caddy.Module.
func (r router) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers." + routerModule, New: func() caddy.Module { return &router{r.serving} }}
}

// answer finds the route of a request and answers it. source is the object that the route comes from, if there is a route.
func (r router) answer(w http.ResponseWriter, req *http.Request, next caddyhttp.Handler) (source string, err error) {
	why := refused(req)
	if req.ProtoMajor == 1 && (why != "" || ambiguous(req)) || r.serving.draining.Load() && req.ProtoMajor < 3 && req.Header["Upgrade"] == nil {
		w.Header().Set("Connection", "close") // while this process drains, the next request comes to the one that follows
	}
	if why != "" {
		return "", answer(w, req, http.StatusBadRequest, why)
	}
	tidy(req.Header)
	s := r.serving.current.Load()
	host := hostOf(req.Host)
	uri := req.URL.RequestURI()
	lookup, req := sought(req)
	found, lookup := find(s.table, host, lookup)
	if found.Misdirected || found.Listener != nil && !allows(found.Listener.Listener, req) {
		return "", answer(w, req, http.StatusMisdirectedRequest, "this connection is for another host\n")
	}
	if found.TooLong {
		return "", answer(w, req, http.StatusRequestURITooLong, "the path, or what a regular expression is for, is too long\n")
	}
	if found.Route == nil {
		return "", answer(w, req, http.StatusNotFound, "nothing serves this host and path\n")
	}
	f := &forwarding{state: s, route: found.Route, host: host, url: lookup.URL, port: found.Listener.Port, uri: uri, memory: &r.serving.repeated}
	if found.Route.Policy != "" {
		return found.Route.Source, r.guarded(w, req, f, next)
	}
	return found.Route.Source, r.serve(w, req, f, next)
}

// serve answers a request that is let in.
func (r router) serve(w http.ResponseWriter, req *http.Request, f *forwarding, next caddyhttp.Handler) error {
	if f.route.CORS != nil && preflight(w, req, f.route.CORS) {
		return nil
	}
	if f.route.Redirect != nil {
		applyHeaders(w.Header(), f.route.ResponseHeaders)
		return redirect(w, req, f)
	}
	disbelieve(req.Header)
	if !f.rewrite() {
		return answer(w, req, http.StatusBadRequest, "the path leads out of what this route serves\n")
	}
	f.backend = f.pick()
	switch {
	case f.backend == nil || f.backend.Endpoints == "":
		return f.unserved(w, req, cmp.Or(f.route.Unserved, http.StatusServiceUnavailable), "this route has no backend that can serve\n")
	case !f.state.table.Serves(f.backend.Endpoints) && !f.fall(req):
		return f.unserved(w, req, http.StatusServiceUnavailable, "no endpoint is ready\n")
	}
	return r.forward(w, req, f, next)
}

// forward has Caddy's proxy lead a request to its backend.
func (r router) forward(w http.ResponseWriter, req *http.Request, f *forwarding, next caddyhttp.Handler) error {
	caddyhttp.SetVar(req.Context(), forwardingVar, f)
	if idle, _ := caddyhttp.IdleTimeoutsFromContext(req.Context()); idle != nil && isStream(req) {
		idle.Override(streamIdle, 0)
	}
	if f.route.Timeout > 0 {
		ctx, cancel := context.WithCancelCause(req.Context())
		f.timer = time.AfterFunc(f.route.Timeout, func() { cancel(errTimeout) })
		defer cancel(nil)
		defer f.timer.Stop()
		req = req.WithContext(ctx)
	}
	if len(f.route.Mirrors) > 0 {
		req = r.serving.mirrors.prepare(req, f)
	}
	defer func() { f.memory.give(f.kept) }()
	err := next.ServeHTTP(w, req)
	if err == nil {
		return nil
	}
	if _, long := errors.AsType[*http.MaxBytesError](err); long {
		return f.unserved(w, req, http.StatusRequestEntityTooLarge, "the body is too long\n")
	}
	status := http.StatusBadGateway
	if of, ok := errors.AsType[caddyhttp.HandlerError](err); ok && of.StatusCode != 0 {
		status = of.StatusCode
	}
	if errors.Is(err, errTimeout) || errors.Is(context.Cause(req.Context()), errTimeout) {
		status = http.StatusGatewayTimeout
	}
	switch status {
	case http.StatusGatewayTimeout:
		return f.unserved(w, req, status, "the backend took too long\n")
	case http.StatusBadGateway:
		return f.unserved(w, req, status, "the backend gave no answer\n")
	}
	return f.unserved(w, req, status, http.StatusText(status)+"\n")
}

// streamIdle is how long the client of a stream may send nothing, as long as one of TCP.
const streamIdle = time.Hour

// isStream reports whether a request's body is a stream, in which a client may be silent: of gRPC, or a WebSocket in HTTP/3 (RFC 9220). In HTTP/1.1
// WebSockets have no body, and HTTP/2 has none of them here.
func isStream(req *http.Request) bool {
	return req.Method == http.MethodConnect || strings.HasPrefix(req.Header.Get("Content-Type"), "application/grpc")
}

// unserved answers in a backend's place.
func (f *forwarding) unserved(w http.ResponseWriter, req *http.Request, status int, text string) error {
	if f.route.CORS != nil {
		allowOrigin(w.Header(), req, f.route.CORS)
	}
	return answer(w, req, status, text)
}

// hostOf returns a host without its port, and an IPv6 address without brackets.
func hostOf(hostPort string) string {
	if !strings.Contains(hostPort, ":") {
		return hostPort
	}
	if host, _, err := net.SplitHostPort(hostPort); err == nil {
		return host
	}
	return strings.Trim(hostPort, "[]")
}

func connectionOf(req *http.Request) (c routes.Connection) {
	if local, ok := req.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		switch local := local.(type) {
		case *net.TCPAddr:
			c.Local = local.AddrPort()
		case *net.UDPAddr: // HTTP/3
			c.Local = local.AddrPort()
		}
	}
	if req.TLS != nil {
		c.Secure, c.Name = true, req.TLS.ServerName
	}
	return c
}

// allows reports whether the connection's client has the certificate that the listener wants. It has, unless the listener has begun to want one
// after the handshake.
func allows(l gateway.Listener, req *http.Request) bool {
	return l.ClientAuthorities == "" || l.AnyClient || req.TLS != nil && len(req.TLS.VerifiedChains) > 0
}
