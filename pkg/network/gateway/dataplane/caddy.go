package dataplane

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// The names of our modules in Caddy's configuration.
const (
	routerModule     = "coracle"
	transportModule  = "coracle"
	handshakeModule  = "coracle"
	streamsModule    = "coracle"
	challengesModule = "coracle_challenges"
)

// The networks of listeners in Caddy's configuration: package listening. There are two because Caddy does not take the same address twice, and a
// port can be for HTTP and HTTPS at different addresses.
const (
	socketNetwork = "coracle"
	secureNetwork = "coracle-secure"
)

// proxyLog is the log of Caddy's proxy. What it says of errors the client is told too, and to prepare it for each request takes 7 % of the time.
const proxyLog = "http.handlers.reverse_proxy"

// streamGrace is how long connections that were upgraded, such as WebSockets, outlive a change of listeners or certificates.
const streamGrace = "1h"

type object map[string]any

// headerTimeout is how long a TLS handshake, and the headers of a request, may take.
const headerTimeout = 10 * time.Second

// bodyTimeout is how long a client may send nothing of a body that is being read.
const bodyTimeout = time.Minute

// limits are what clients may take. Tests have shorter ones.
type limits struct{ header, body time.Duration }

// caddyConfig returns Caddy's configuration, which depends on listeners and certificates only: routes and endpoints are looked up by our
// modules. No text of a user gets into it except certificates, because Caddy expands placeholders.
func caddyConfig(listeners []gateway.Listener, certificates []gateway.Certificate, fallback gateway.Certificate, limits limits) ([]byte, error) {
	servers := object{}
	ports := map[string][]gateway.Listener{}
	for _, l := range listeners {
		ports[serverName(l.Port, l.Protocol)] = append(ports[serverName(l.Port, l.Protocol)], l)
	}
	for name, of := range ports {
		servers[name] = server(of[0].Port, of, certificates, fallback, limits)
	}
	pairs := []object{}
	for _, c := range append(slices.Clip(certificates), fallback) {
		pairs = append(pairs, object{"certificate": c.Chain, "key": c.Key, "tags": []string{tagOf(c)}})
	}
	// Without listeners of HTTPS there is Caddy's app for TLS too, which would look after a storage.
	secure := object{"disable_ocsp_stapling": true, "disable_storage_check": true, "disable_storage_clean": true}
	if slices.ContainsFunc(listeners, func(l gateway.Listener) bool { return l.Protocol == gateway.HTTPS }) {
		secure["certificates"] = object{"load_pem": pairs}
	}
	return json.Marshal(object{
		"admin":   object{"disabled": true, "config": object{"persist": false}},
		"logging": object{"logs": object{"default": object{"level": "ERROR", "exclude": []string{"http.log.error", proxyLog}}}},
		"storage": object{"module": challengesModule},
		"apps":    object{"http": object{"servers": servers, "grace_period": "10s"}, "tls": secure},
	})
}

// serverName returns the name of Caddy's server for the listeners of a port and a protocol.
func serverName(port uint16, protocol gateway.Protocol) string {
	return fmt.Sprintf("%s-%d", protocol, port)
}

// server serves listeners of a port that all have the same protocol.
func server(port uint16, listeners []gateway.Listener, certificates []gateway.Certificate, fallback gateway.Certificate, limits limits) object {
	s := object{
		"listen":              []string{fmt.Sprintf("%s/:%d", socketNetwork, port)},
		"protocols":           []string{"h1", "h2c"},
		"automatic_https":     object{"disable": true},
		"read_header_timeout": limits.header.String(),
		"read_idle_timeout":   limits.body.String(),
		"idle_timeout":        "5m",
		"max_header_bytes":    64 << 10,
		"listener_wrappers":   []object{{"wrapper": streamsModule}, {"wrapper": "tls"}},
		"routes":              []object{{"handle": []object{{"handler": routerModule}, proxy()}}},
	}
	if listeners[0].Protocol == gateway.HTTPS {
		s["listen"] = []string{fmt.Sprintf("%s/:%d", secureNetwork, port)}
		s["protocols"] = []string{"h1", "h2"}
		s["tls_connection_policies"] = policies(listeners, certificates, fallback)
		s["strict_sni_host"] = false // the router compares them, by listener
	}
	return s
}

// proxy is Caddy's, with our transport, which knows the backend's address: Caddy gets a name in its place.
func proxy() object {
	return object{
		"handler": "reverse_proxy", "transport": object{"protocol": transportModule}, "upstreams": []object{{"dial": "backend:80"}},
		"stream_close_delay": streamGrace,
	}
}
