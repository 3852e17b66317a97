package dataplane

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
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
		pairs = append(pairs, object{"certificate": c.Chain, "key": c.Key, "tags": []string{tagOf(c.Source)}})
	}
	apps := object{"http": object{"servers": servers, "grace_period": "10s"}}
	if slices.ContainsFunc(listeners, func(l gateway.Listener) bool { return l.Protocol == gateway.HTTPS }) {
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
			{"match": []object{{"vars": object{protocolVar: []gateway.BackendProtocol{gateway.ToH2C}}}}, "handle": []object{proxy(gateway.ToH2C)}, "terminal": true},
			{"match": []object{{"vars": object{protocolVar: []gateway.BackendProtocol{gateway.ToHTTPS}}}}, "handle": []object{proxy(gateway.ToHTTPS)}, "terminal": true},
			{"handle": []object{proxy(gateway.ToHTTP)}},
		},
	}
	if l.Protocol == gateway.HTTPS {
		s["protocols"] = []string{"h1", "h2"}
		s["tls_connection_policies"] = policies(l, certificates, fallback)
	}
	return s
}

// policies say which certificates serve which hosts. The names in a certificate do not: anybody can make one with the name of another's host.
// Caddy uses the first policy that matches, so those for wildcards come after the others.
func policies(l gateway.Listener, certificates []gateway.Certificate, fallback gateway.Certificate) (out []object) {
	usable := map[string]bool{}
	for _, c := range certificates {
		usable[c.Source] = true
	}
	for _, host := range slices.SortedFunc(maps.Keys(l.Certificates), specific) {
		policy := object{"certificate_selection": object{"any_tag": tags(l.Certificates[host], usable, fallback)}, "fallback_sni": fallbackName}
		if name := cmp.Or(host, l.Host); name != "" {
			policy["match"] = object{"sni": []string{name}}
		}
		out = append(out, policy)
	}
	return append(out, object{"certificate_selection": object{"any_tag": []string{tagOf(fallback.Source)}}, "fallback_sni": fallbackName})
}

// specific orders hosts: names, then wildcards, then all hosts.
func specific(a, b string) int {
	rank := func(host string) int {
		switch {
		case host == "":
			return 2
		case strings.HasPrefix(host, "*."):
			return 1
		}
		return 0
	}
	return cmp.Or(rank(a)-rank(b), len(b)-len(a), strings.Compare(a, b))
}

func tags(sources []string, usable map[string]bool, fallback gateway.Certificate) (out []string) {
	for _, source := range sources {
		if usable[source] {
			out = append(out, tagOf(source))
		}
	}
	return append(out, tagOf(fallback.Source))
}

func proxy(p gateway.BackendProtocol) object {
	transport := object{"protocol": "http", "keep_alive": object{"idle_timeout": "1m"}}
	switch p {
	case gateway.ToHTTP:
		transport["versions"] = []string{"1.1"}
	case gateway.ToH2C:
		transport["versions"] = []string{"h2c"}
	case gateway.ToHTTPS:
		transport["versions"] = []string{"1.1", "2"}
		transport["tls"] = object{"insecure_skip_verify": true}
	}
	handler := object{
		"handler": "reverse_proxy", "transport": transport, "dynamic_upstreams": object{"source": upstreamsModule},
		"load_balancing":     object{"selection_policy": object{"policy": "first"}, "retries": retries},
		"stream_close_delay": streamGrace,
	}
	if p == gateway.ToHTTPS { // Caddy sends the backend's address otherwise
		handler["headers"] = object{"request": object{"set": object{"Host": []string{"{http.request.host}"}}}}
	}
	return handler
}
