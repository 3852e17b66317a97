package routes

import (
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// Streams is what connections and datagrams are looked up in. It does not change: a change of listeners or streams makes another one.
type Streams struct{ sites map[spot]*Site }

// spot is where connections or datagrams arrive. A listener without addresses is at the zero address.
type spot struct {
	address netip.Addr
	port    uint16
	udp     bool
}

// Site is what serves a port at an address, or at those that no listener has as its own.
type Site struct {
	// Named says that the name in the TLS handshake selects the listener.
	Named bool
	// Web says that there are listeners for HTTP or HTTPS, and Streams that there are others.
	Web, Streams bool

	protocol gateway.Protocol // of the first listener
	hosts    index[[]*StreamListener]
	apart    index[*StreamListener] // the hosts that are served by one listener alone
}

// StreamListener is a listener with its streams. One for HTTP or HTTPS has none.
type StreamListener struct {
	gateway.Listener
	hosts index[*Stream]
}

// IsWeb reports whether the listener is for HTTP or HTTPS.
func (l *StreamListener) IsWeb() bool { return isWeb(l.Protocol) }

// Stream is a stream with what is made of it once.
type Stream struct {
	*gateway.Stream
	total uint64
	turn  atomic.Uint32
}

// Pick returns the backend that has the turn; nil if there is none with a weight.
func (s *Stream) Pick() *gateway.Backend { return pick(s.Backends, s.total, &s.turn) }

// Has reports whether an address is one of a backend with a weight.
func (s *Stream) Has(t *Table, address string) bool {
	return slices.ContainsFunc(s.Backends, func(b gateway.Backend) bool {
		return b.Weight > 0 && t.endpoints[b.Endpoints] != nil && slices.Contains(t.endpoints[b.Endpoints].addresses, address)
	})
}

// NewStreams returns the table for a configuration, and the reasons why listeners are not served, by port.
func NewStreams(config gateway.Config) (s *Streams, refused map[uint16]string) {
	s, refused = &Streams{sites: map[spot]*Site{}}, map[uint16]string{}
	byName := make(map[string]*StreamListener, len(config.Listeners))
	for _, l := range config.Listeners {
		listener := &StreamListener{Listener: l, hosts: index[*Stream]{}}
		byName[l.Name] = listener
		for _, at := range places(l) {
			at := spot{at.address, at.port, l.Protocol == gateway.UDP}
			site := s.sites[at]
			if site == nil {
				site = &Site{protocol: l.Protocol, Named: isNamed(l.Protocol), hosts: index[[]*StreamListener]{}, apart: index[*StreamListener]{}}
				s.sites[at] = site
			}
			if site.protocol != l.Protocol && !(site.Named && isNamed(l.Protocol)) {
				if !isWeb(site.protocol) || !isWeb(l.Protocol) {
					refused[l.Port] = fmt.Sprintf("of listeners with %s and %s only the former is served", site.protocol, l.Protocol)
				}
				continue
			}
			host := ""
			if site.Named {
				host = key(l.Host)
			}
			site.Web, site.Streams = site.Web || isWeb(l.Protocol), site.Streams || !isWeb(l.Protocol)
			site.hosts[host] = append(site.hosts[host], listener)
			for _, host := range l.Yields {
				site.apart[key(host)] = nil
			}
		}
		if !listener.IsWeb() && l.Host != "" {
			s.own(listener, key(l.Host))
		}
	}
	for _, r := range config.Routes {
		for _, name := range r.Listeners {
			if l := byName[name]; l != nil && r.Host != "" {
				s.own(l, key(r.Host))
			}
		}
	}
	for i := range config.Streams {
		stream := &Stream{Stream: &config.Streams[i]}
		for _, b := range stream.Backends {
			stream.total += uint64(max(0, b.Weight))
		}
		stream.turn.Store(startOfTurns())
		hosts := stream.Hosts
		if len(hosts) == 0 {
			hosts = []string{""}
		}
		for _, name := range stream.Listeners {
			for _, host := range hosts {
				if l := byName[name]; l != nil && !l.IsWeb() && l.hosts[key(host)] == nil {
					l.hosts[key(host)] = stream
				}
			}
		}
	}
	return s, refused
}

// own keeps a host of a listener with HostsApart from the others of its sites.
func (s *Streams) own(l *StreamListener, host string) {
	if !l.HostsApart || !isNamed(l.Protocol) {
		return
	}
	for _, at := range places(l.Listener) {
		if site := s.sites[spot{at.address, at.port, false}]; site.Named && site.apart[host] == nil {
			site.apart[host] = l
		}
	}
}

// At returns what serves connections, or datagrams, to a local address; nil if nothing does.
func (s *Streams) At(local netip.AddrPort, udp bool) *Site {
	if site := s.sites[spot{local.Addr().Unmap(), local.Port(), udp}]; site != nil {
		return site
	}
	return s.sites[spot{port: local.Port(), udp: udp}]
}

// Find returns the listener for the name in a TLS handshake, or for connections without TLS, and its stream; nil if there is none. Those for HTTP
// and HTTPS have no stream.
func (s *Site) Find(name string) (*StreamListener, *Stream) {
	name = canonical(name)
	_, listeners := s.hosts.find(name)
	if owner := s.apart.owner(name); owner != nil {
		listeners = []*StreamListener{owner}
	}
	for _, l := range listeners {
		if _, stream := l.hosts.find(name); stream != nil {
			return l, stream
		}
		if l.IsWeb() && !l.HostsApart { // one with HostsApart leaves what it has not for itself to streams that name it
			break
		}
	}
	if len(listeners) == 0 {
		return nil, nil
	}
	return listeners[max(0, slices.IndexFunc(listeners, (*StreamListener).IsWeb))], nil
}

func isWeb(p gateway.Protocol) bool { return p == gateway.HTTP || p == gateway.HTTPS }

func isNamed(p gateway.Protocol) bool {
	return p == gateway.HTTPS || p == gateway.TLS || p == gateway.Passthrough
}
