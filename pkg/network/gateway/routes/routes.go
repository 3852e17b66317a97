// Package routes looks up which route of which listener serves a request, which of its backends, and which of that one's addresses has the turn.
package routes

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/netip"
	"slices"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// Table is what requests are looked up in. It does not change: a change of routes or endpoints makes another one.
type Table struct {
	sites     map[place]*site
	endpoints map[string]*pool
	slow      chan struct{} // full while a search takes long
}

// place is where connections arrive. A listener without addresses is at the zero address.
type place struct {
	address netip.Addr
	port    uint16
	secure  bool // with TLS
}

// site is what serves a place: the listeners by their hosts, and besides them the hosts that are served by one listener alone.
type site struct {
	listeners, apart index[[]*Listener]
}

// of returns the listeners that may serve a host, and the key of their own host.
func (s *site) of(host string) (at string, listeners []*Listener) {
	if owner := s.apart.owner(host); owner != nil {
		return key(owner[0].Host), owner
	}
	return s.listeners.find(host)
}

// yielded reports whether listeners with HostsApart leave a host to the others.
func (s *site) yielded(host string) bool {
	of, named := s.apart[host]
	return named && of == nil
}

// Listener is a listener with its routes.
type Listener struct {
	gateway.Listener
	hosts       index[*paths]
	authorities map[string]bool // of clients' certificates, as they are in a chain
}

func newListener(l gateway.Listener) *Listener {
	out := &Listener{Listener: l, hosts: index[*paths]{}, authorities: map[string]bool{}}
	for block, rest := pem.Decode([]byte(l.ClientAuthorities)); block != nil; block, rest = pem.Decode(rest) {
		out.authorities[string(block.Bytes)] = true
	}
	return out
}

// shown reports whether a client has shown the certificate that the listener wants, whichever listener of the place the handshake was for.
func (l *Listener) shown(state *tls.ConnectionState) bool {
	return l.ClientAuthorities == "" || l.AnyClient || state != nil && slices.ContainsFunc(state.VerifiedChains, func(chain []*x509.Certificate) bool {
		return len(chain) > 0 && l.authorities[string(chain[len(chain)-1].Raw)]
	})
}

// New returns the table for a configuration. Turns go on where they were in the table before. A route with a regular expression that is none is
// left out.
func New(config gateway.Config, endpoints gateway.Endpoints, before *Table) *Table {
	t := &Table{sites: map[place]*site{}, slow: make(chan struct{}, 1)}
	if before != nil {
		t.slow = before.slow
	}
	byName := make(map[string]*Listener, len(config.Listeners))
	for _, l := range config.Listeners {
		if l.Protocol != gateway.HTTP && l.Protocol != gateway.HTTPS {
			continue
		}
		listener := newListener(l)
		byName[l.Name] = listener
		for _, at := range places(l) {
			if t.sites[at] == nil {
				t.sites[at] = &site{listeners: index[[]*Listener]{}, apart: index[[]*Listener]{}}
			}
			for _, host := range l.Yields {
				t.sites[at].apart[key(host)] = nil
			}
			t.sites[at].listeners[key(l.Host)] = append(t.sites[at].listeners[key(l.Host)], listener)
		}
	}
	var all []*paths
	expressions := compiler{}
	for i := range config.Routes {
		route, err := expressions.route(&config.Routes[i], i)
		if err != nil {
			continue
		}
		for _, name := range route.Listeners {
			listener := byName[name]
			if listener == nil {
				continue
			}
			host := listener.hosts[key(route.Host)]
			if host == nil {
				host = &paths{exact: map[string][]*Route{}, prefix: map[string][]*Route{}}
				listener.hosts[key(route.Host)] = host
				all = append(all, host)
				t.own(listener, key(route.Host))
			}
			host.add(route)
		}
	}
	for _, p := range all {
		p.sort()
	}
	return t.With(endpoints, before)
}

// own keeps a host of a listener with HostsApart from the others of its places. All hosts are nobody's.
func (t *Table) own(l *Listener, host string) {
	for _, at := range places(l.Listener) {
		if apart := t.sites[at].apart; l.HostsApart && host != "" && apart[host] == nil {
			apart[host] = []*Listener{l}
		}
	}
}

// Apart reports whether a host, that a TLS handshake to an address names, is one that a listener with HostsApart has for itself.
func (t *Table) Apart(local netip.AddrPort, name string) bool {
	s := t.at(place{local.Addr().Unmap(), local.Port(), true})
	return s != nil && s.apart.owner(canonical(name)) != nil
}

// Own reports whether an address is one that a listener of HTTPS has for itself.
func (t *Table) Own(local netip.AddrPort) bool {
	return t.sites[place{local.Addr().Unmap(), local.Port(), true}] != nil
}

// Secure reports whether connections to an address speak TLS; known is false if nothing for HTTP serves it.
func (t *Table) Secure(local netip.AddrPort) (secure, known bool) {
	for _, address := range []netip.Addr{local.Addr().Unmap(), {}} {
		for _, secure := range []bool{false, true} {
			if t.sites[place{address, local.Port(), secure}] != nil {
				return secure, true
			}
		}
	}
	return false, false
}

// at returns what serves a place; nil if nothing does.
func (t *Table) at(p place) *site {
	if s := t.sites[p]; s != nil {
		return s
	}
	return t.sites[place{port: p.port, secure: p.secure}]
}

// With returns the table with other endpoints. Turns go on where they were in the table before.
func (t *Table) With(endpoints gateway.Endpoints, before *Table) *Table {
	out := &Table{sites: t.sites, slow: t.slow, endpoints: make(map[string]*pool, len(endpoints))}
	for name, addresses := range endpoints {
		p := &pool{addresses: addresses}
		if before != nil && before.endpoints[name] != nil {
			p.turn.Store(before.endpoints[name].turn.Load())
		}
		out.endpoints[name] = p
	}
	return out
}

// places returns where a listener accepts connections. An address that is none is left out.
func places(l gateway.Listener) (out []place) {
	at := place{port: l.Port, secure: l.Protocol == gateway.HTTPS}
	if len(l.Addresses) == 0 {
		return []place{at}
	}
	for _, text := range l.Addresses {
		if address, err := netip.ParseAddr(text); err == nil {
			at.address = address.Unmap()
			out = append(out, at)
		}
	}
	return out
}

// Connection is how a request has come.
type Connection struct {
	Local  netip.AddrPort // the gateway's address
	Secure bool           // with TLS
	Name   string         // that the TLS handshake named
}

// Found is what serves a request.
type Found struct {
	Listener *Listener // nil if no listener is for the request's host
	Route    *Route    // nil if none matches
	// Misdirected says that the request's host belongs to another listener than the name in the handshake, so that the certificates that were
	// shown may not be for it.
	Misdirected bool
	// TooLong says that the path, or what a regular expression is for, is too long to look for the route.
	TooLong bool
}

// Find returns what serves a request, whose host is without the port.
func (t *Table) Find(c Connection, host string, r *http.Request) Found {
	site := t.at(place{c.Local.Addr().Unmap(), c.Local.Port(), c.Secure})
	if site == nil {
		return Found{}
	}
	host = canonical(host)
	at, listeners := site.of(host)
	if c.Secure {
		if name := canonical(c.Name); name != host {
			if other, _ := site.of(name); other != at {
				return Found{Misdirected: true}
			}
		}
	}
	s := &search{request: r, slow: t.slow}
	defer s.end()
	for _, l := range listeners {
		if !l.shown(r.TLS) {
			continue // the handshake has asked for what another one wants
		}
		route := l.find(host, s)
		if s.tooLong {
			return Found{Listener: l, TooLong: true}
		}
		if route == nil || l.HostsApart && (site.yielded(host) || route.Host == "" && named(listeners, host)) {
			continue
		}
		return Found{Listener: l, Route: route}
	}
	if len(listeners) == 0 {
		return Found{}
	}
	return Found{Listener: listeners[0]}
}

// named reports whether one of the listeners has routes that name a host, or a wildcard above it. It is not for those for all hosts then.
func named(listeners []*Listener, host string) bool {
	return slices.ContainsFunc(listeners, func(l *Listener) bool {
		at, _ := l.hosts.find(host)
		return !l.HostsApart && at != ""
	})
}

// find returns the route that serves a request for a host.
func (l *Listener) find(host string, s *search) *Route {
	above := lessSpecific(host)
	for name, more := host, true; more; name, more = lessSpecific(name), name != "" {
		p := l.hosts[name]
		if p == nil || l.HostsApart && name != host && name != above && name != "" {
			continue
		}
		if route := p.find(s); route != nil || l.HostsApart || s.tooLong {
			return route
		}
	}
	return nil
}
