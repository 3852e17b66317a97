package dataplane

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// The names of our modules in Caddy's configuration.
const (
	routerModule    = "coracle"
	upstreamsModule = "coracle"
)

// retries are how often a request is sent to another address, after one that did not accept the connection.
const retries = 3

// streamGrace is how long connections that were upgraded, such as WebSockets, outlive a change of listeners or certificates.
const streamGrace = "1h"

type object map[string]any

// caddyConfig returns Caddy's configuration, which depends on listeners and certificates only: routes and endpoints are looked up by our
// modules. No text of a user gets into it except certificates, because Caddy expands placeholders.
func caddyConfig(listeners []gateway.Listener, certificates []gateway.Certificate, fallback gateway.Certificate) ([]byte, error) {
	servers := object{}
	for _, l := range listeners {
		servers[fmt.Sprint(l.Port)] = server(l, certificates, fallback)
	}
	pairs := []object{}
	for _, c := range append(slices.Clip(certificates), fallback) {
		pairs = append(pairs, object{"certificate": c.Chain, "key": c.Key, "tags": []string{tagOf(c)}})
	}
	apps := object{"http": object{"servers": servers, "grace_period": "10s"}}
	if slices.ContainsFunc(listeners, func(l gateway.Listener) bool { return l.TLS }) {
		apps["tls"] = object{
			"certificates":          object{"load_pem": pairs},
			"disable_ocsp_stapling": true, "disable_storage_check": true, "disable_storage_clean": true,
		}
	}
	return json.Marshal(object{
		"admin":   object{"disabled": true, "config": object{"persist": false}},
		"logging": object{"logs": object{"default": object{"level": "ERROR", "exclude": []string{"http.log.error"}}}},
		"apps":    apps,
	})
}

func server(l gateway.Listener, certificates []gateway.Certificate, fallback gateway.Certificate) object {
	s := object{
		"listen":              []string{fmt.Sprintf(":%d", l.Port)},
		"protocols":           []string{"h1", "h2c"},
		"automatic_https":     object{"disable": true},
		"read_header_timeout": "10s",
		"idle_timeout":        "5m",
		"max_header_bytes":    64 << 10,
		"routes": []object{
			{"handle": []object{{"handler": routerModule}}},
			{"match": []object{{"vars": object{protocolVar: []gateway.Protocol{gateway.H2C}}}}, "handle": []object{proxy(gateway.H2C)}, "terminal": true},
			{"match": []object{{"vars": object{protocolVar: []gateway.Protocol{gateway.HTTPS}}}}, "handle": []object{proxy(gateway.HTTPS)}, "terminal": true},
			{"handle": []object{proxy(gateway.HTTP)}},
		},
	}
	if l.TLS {
		s["protocols"] = []string{"h1", "h2"}
		s["tls_connection_policies"] = policies(certificates, fallback)
	}
	return s
}

// policies say which certificate serves which hosts. The names in a certificate do not: anybody can make one with the name of another's host.
// Caddy uses the first policy that matches, so those for wildcards come last.
func policies(certificates []gateway.Certificate, fallback gateway.Certificate) (out []object) {
	for _, wild := range []bool{false, true} {
		for _, c := range certificates {
			hosts := slices.DeleteFunc(slices.Clone(c.Hosts), func(host string) bool { return strings.HasPrefix(host, "*.") != wild })
			if len(hosts) == 0 {
				continue
			}
			out = append(out, object{
				"match": object{"sni": hosts}, "certificate_selection": object{"any_tag": []string{tagOf(c), tagOf(fallback)}}, "fallback_sni": fallbackName,
			})
		}
	}
	return append(out, object{"certificate_selection": object{"any_tag": []string{tagOf(fallback)}}, "fallback_sni": fallbackName})
}

func proxy(p gateway.Protocol) object {
	transport := object{"protocol": "http", "keep_alive": object{"idle_timeout": "1m"}}
	switch p {
	case gateway.HTTP:
		transport["versions"] = []string{"1.1"}
	case gateway.H2C:
		transport["versions"] = []string{"h2c"}
	case gateway.HTTPS:
		transport["versions"] = []string{"1.1", "2"}
		transport["tls"] = object{"insecure_skip_verify": true}
	}
	handler := object{
		"handler": "reverse_proxy", "transport": transport, "dynamic_upstreams": object{"source": upstreamsModule},
		"load_balancing":     object{"selection_policy": object{"policy": "first"}, "retries": retries},
		"stream_close_delay": streamGrace,
	}
	if p == gateway.HTTPS { // Caddy sends the backend's address otherwise
		handler["headers"] = object{"request": object{"set": object{"Host": []string{"{http.request.host}"}}}}
	}
	return handler
}
