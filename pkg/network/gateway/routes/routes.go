// Package routes looks up which backend serves a request, and which of its addresses has the turn.
package routes

import (
	"net"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// Table is what requests are looked up in. It does not change: a change of routes or endpoints makes another one.
type Table struct {
	hosts     map[string]*paths
	endpoints map[string]*pool
}

// paths are the routes of one host.
type paths struct {
	exact, prefix map[string]gateway.Route
	longest       int // length of a prefix
}

// pool are the addresses of a backend, which take turns.
type pool struct {
	addresses []string
	turn      atomic.Uint32
}

// New returns the table for a configuration. Turns go on where they were in the table before.
func New(routes []gateway.Route, endpoints gateway.Endpoints, before *Table) *Table {
	t := &Table{hosts: map[string]*paths{}, endpoints: make(map[string]*pool, len(endpoints))}
	for _, r := range routes {
		host := t.hosts[r.Host]
		if host == nil {
			host = &paths{exact: map[string]gateway.Route{}, prefix: map[string]gateway.Route{}}
			t.hosts[r.Host] = host
		}
		if r.Kind == gateway.Exact {
			host.exact[r.Path] = r
		} else {
			prefix := strings.TrimRight(r.Path, "/")
			host.prefix[prefix] = r
			host.longest = max(host.longest, len(prefix))
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

// Find returns the route that serves a path of a host. A host that has routes has no others: those of a wildcard or of all hosts may be another
// namespace's.
func (t *Table) Find(host, path string) (gateway.Route, bool) {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	wildcard := ""
	if _, parent, ok := strings.Cut(host, "."); ok && net.ParseIP(host) == nil {
		wildcard = "*." + parent
	}
	for _, name := range []string{host, wildcard, ""} {
		if of, ok := t.hosts[name]; ok {
			return of.find(path)
		}
	}
	return gateway.Route{}, false
}

func (p *paths) find(path string) (gateway.Route, bool) {
	if r, ok := p.exact[path]; ok {
		return r, true
	}
	prefix := strings.TrimRight(path, "/")
	if len(prefix) > p.longest { // whatever the length of a request's path, the loop is short
		prefix = prefix[:p.longest+1]
		prefix = prefix[:max(0, strings.LastIndexByte(prefix, '/'))]
		if path[0] != '/' {
			return gateway.Route{}, false
		}
	}
	for {
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

// Next returns an address of a backend that is not among those that were tried; "" if there is none.
func (t *Table) Next(backend string, tried []string) string {
	if !t.Serves(backend) {
		return ""
	}
	p := t.endpoints[backend]
	turn := p.turn.Add(1)
	for i := range uint32(len(p.addresses)) {
		address := p.addresses[(turn+i)%uint32(len(p.addresses))]
		if !slices.Contains(tried, address) {
			return address
		}
	}
	return ""
}

// Serves reports whether a backend has an address.
func (t *Table) Serves(backend string) bool {
	p := t.endpoints[backend]
	return p != nil && len(p.addresses) > 0
}
