package dataplane

import (
	"net"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// table is what requests are looked up in. A change of routes or endpoints replaces it, and neither closes a connection nor loads Caddy's
// configuration again.
type table struct {
	hosts     map[string]paths
	endpoints map[string]*pool
}

// paths are the routes of one host.
type paths struct {
	exact, prefix map[string]gateway.Route
}

// pool are the addresses of a backend, which take turns.
type pool struct {
	addresses []string
	turn      atomic.Uint32
}

// newTable returns the table for a configuration. Turns go on where they were in the table before.
func newTable(routes []gateway.Route, endpoints gateway.Endpoints, before *table) *table {
	t := &table{hosts: map[string]paths{}, endpoints: make(map[string]*pool, len(endpoints))}
	for _, r := range routes {
		host := t.hosts[r.Host]
		if host.exact == nil {
			host = paths{exact: map[string]gateway.Route{}, prefix: map[string]gateway.Route{}}
			t.hosts[r.Host] = host
		}
		if r.Exact {
			host.exact[r.Path] = r
		} else {
			host.prefix[strings.TrimRight(r.Path, "/")] = r
		}
	}
	for key, addresses := range endpoints {
		p := &pool{addresses: addresses}
		if before != nil && before.endpoints[key] != nil {
			p.turn.Store(before.endpoints[key].turn.Load())
		}
		t.endpoints[key] = p
	}
	return t
}

// find returns the route that serves a path of a host.
func (t *table) find(host, path string) (gateway.Route, bool) {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	wildcard := ""
	if _, parent, ok := strings.Cut(host, "."); ok && net.ParseIP(host) == nil {
		wildcard = "*." + parent
	}
	for _, name := range []string{host, wildcard, ""} {
		if of, ok := t.hosts[name]; ok {
			if r, ok := of.find(path); ok {
				return r, true
			}
		}
	}
	return gateway.Route{}, false
}

func (p paths) find(path string) (gateway.Route, bool) {
	if r, ok := p.exact[path]; ok {
		return r, true
	}
	for prefix := strings.TrimRight(path, "/"); ; {
		if r, ok := p.prefix[prefix]; ok {
			return r, true
		}
		end := strings.LastIndexByte(prefix, '/')
		if end < 0 {
			return gateway.Route{}, false
		}
		prefix = prefix[:end]
	}
}

// next returns an address of a backend that is not among those that were tried; "" if there is none.
func (t *table) next(backend string, tried []string) string {
	p := t.endpoints[backend]
	if p == nil || len(p.addresses) == 0 {
		return ""
	}
	turn := p.turn.Add(1)
	for i := range uint32(len(p.addresses)) {
		address := p.addresses[(turn+i)%uint32(len(p.addresses))]
		if !contains(tried, address) {
			return address
		}
	}
	return ""
}

func contains(all []string, one string) bool {
	for _, s := range all {
		if s == one {
			return true
		}
	}
	return false
}

// protocolVar is the variable of a request that says how its backend is spoken to, for matchers of Caddy's configuration.
const protocolVar = "coracle.protocol"

// attempts is what a request's context has of its route and of the addresses that did not answer.
type attempts struct {
	table   *table
	backend string
	tried   []string
}

const attemptsVar = "coracle.attempts"

// router is the handler of Caddy's that finds the route of a request. Caddy's own matchers would look at one route after the other, ignore
// the case of paths, and expand placeholders in them, such as {file./config.json}.
type router struct{ current *atomic.Pointer[table] }

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
	route, ok := t.find(host, req.URL.Path)
	switch {
	case !ok:
		return answer(w, http.StatusNotFound, "nothing serves this host and path\n")
	case t.endpoints[route.Backend] == nil || len(t.endpoints[route.Backend].addresses) == 0:
		return answer(w, http.StatusServiceUnavailable, "no endpoint is ready\n")
	}
	caddyhttp.SetVar(req.Context(), protocolVar, string(route.Protocol))
	caddyhttp.SetVar(req.Context(), attemptsVar, &attempts{table: t, backend: route.Backend})
	return next.ServeHTTP(w, req)
}

func answer(w http.ResponseWriter, status int, text string) error {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, err := w.Write([]byte(text))
	return err
}
