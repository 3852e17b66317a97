package dataplane

import (
	"net"

	"github.com/caddyserver/caddy/v2"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
	"github.com/coracle-dev/coracle/pkg/network/gateway/streams"
)

// sharing is the wrapper of Caddy's listeners that leaves the connections of streams to them.
type sharing struct{ streams *streams.Server }

// CaddyModule implements caddy.Module.
func (s sharing) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.listeners." + streamsModule, New: func() caddy.Module { return &sharing{s.streams} }}
}

// WrapListener implements caddy.ListenerWrapper.
func (s sharing) WrapListener(l net.Listener) net.Listener {
	_, secure := l.(secureListener)
	return s.streams.Share(l, secure)
}

// secureListener is one for HTTPS.
type secureListener struct{ net.Listener }

// applyStreams serves the streams of a configuration, for which Caddy has listeners already, and adds why ports are refused.
func (s *serving) applyStreams(config gateway.Config, listeners []gateway.Listener, refused map[uint16]string) {
	web := map[uint16]bool{}
	for _, l := range listeners {
		web[l.Port] = true
	}
	for port, why := range s.streams.Apply(config, s.current.Load().table, web) {
		if refused[port] == "" {
			refused[port] = why
		}
	}
}
