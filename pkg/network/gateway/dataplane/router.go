package dataplane

import (
	"net"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/coracle-dev/coracle/pkg/network/gateway/routes"
)

// protocolVar is the variable of a request that says how its backend is spoken to, for matchers of Caddy's configuration.
const protocolVar = "coracle.protocol"

// attempts is what a request's context has of its route and of the addresses that did not answer.
type attempts struct {
	table   *routes.Table
	backend string
	tried   []string
}

const attemptsVar = "coracle.attempts"

// router is the handler of Caddy's that finds the route of a request. Caddy's own matchers would look at one route after the other, ignore
// the case of paths, and expand placeholders in them, such as {file./config.json}.
type router struct{ current *atomic.Pointer[routes.Table] }

// CaddyModule implements caddy.Module.
func (r router) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers." + routerModule, New: func() caddy.Module { return &router{r.current} }}
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (r router) ServeHTTP(w http.ResponseWriter, req *http.Request, next caddyhttp.Handler) error {
	t := r.current.Load()
	host, _, err := net.SplitHostPort(req.Host)
	if err != nil {
		host = strings.Trim(req.Host, "[]")
	}
	route, ok := t.Find(host, req.URL.Path)
	if !ok {
		return answer(w, http.StatusNotFound, "nothing serves this host and path\n")
	}
	to := route.Backends[0]
	if !t.Serves(to.Endpoints) {
		return answer(w, http.StatusServiceUnavailable, "no endpoint is ready\n")
	}
	caddyhttp.SetVar(req.Context(), protocolVar, string(to.Protocol))
	caddyhttp.SetVar(req.Context(), attemptsVar, &attempts{table: t, backend: to.Endpoints})
	return next.ServeHTTP(w, req)
}

func answer(w http.ResponseWriter, status int, text string) error {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, err := w.Write([]byte(text))
	return err
}
