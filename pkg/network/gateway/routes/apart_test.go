package routes

import (
	"net/netip"
	"testing"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// shared is the configuration of Ingresses, and of Gateways whose routes and listeners try to get hosts of theirs.
func shared() gateway.Config {
	listener := func(name, host string, protocol gateway.Protocol) gateway.Listener {
		port := uint16(80)
		if protocol != gateway.HTTP {
			port = 443
		}
		return gateway.Listener{Name: name, Host: host, Port: port, Protocol: protocol, HostsApart: name[0] == 'i'}
	}
	config := gateway.Config{Listeners: []gateway.Listener{
		listener("ingress", "", gateway.HTTP), listener("ingress-s", "", gateway.HTTPS), listener("ingress-pass", "pass.test", gateway.Passthrough),
		listener("front", "", gateway.HTTP), listener("front-s", "", gateway.HTTPS),
		listener("name", "a.test", gateway.HTTP), listener("name-s", "a.test", gateway.HTTPS),
		listener("below", "x.w.test", gateway.HTTP), listener("below-s", "x.w.test", gateway.HTTPS),
		listener("own", "own.test", gateway.HTTP), listener("own-s", "own.test", gateway.HTTPS),
		listener("tls-a", "b.test", gateway.TLS), listener("tls-w", "y.w.test", gateway.Passthrough), listener("tls-own", "tls.test", gateway.TLS),
		listener("tls-p", "pass.test", gateway.TLS),
	}}
	own := listener("addressed", "a.test", gateway.HTTP)
	own.Addresses = []string{"10.0.0.9"}
	config.Listeners = append(config.Listeners, own)
	add := func(host, path string, listeners ...string) {
		config.Routes = append(config.Routes, gateway.Route{Host: host, Match: gateway.Match{Path: path}, Listeners: listeners, Source: listeners[0]})
	}
	for _, host := range []string{"a.test", "b.test", "*.w.test", "pass.test"} {
		add(host, "/app", "ingress", "ingress-s")
	}
	add("", "/", "ingress", "ingress-s")
	add("a.test", "/", "front", "front-s")
	add("*.test", "/", "front", "front-s")
	add("gate.example", "/app", "front", "front-s")
	add("", "/", "name", "name-s", "below", "below-s", "own", "own-s", "addressed")
	for _, name := range []string{"ingress-pass", "tls-a", "tls-w", "tls-own", "tls-p"} {
		config.Streams = append(config.Streams, gateway.Stream{Listeners: []string{name}})
	}
	return config
}

// TestApart: nobody but its Ingresses serves a host, and Ingresses for all hosts take none that others name.
func TestApart(t *testing.T) {
	table := New(shared(), nil, nil)
	for _, c := range []struct{ host, path, want string }{
		{"a.test", "/app", "ingress"},
		{"a.test", "/.well-known/acme-challenge/token", ""},
		{"A.test.", "/", ""},
		{"x.w.test", "/app", "ingress"},
		{"x.w.test", "/", ""},
		{"x.y.w.test", "/", "front"}, // two labels below a wildcard of Ingresses
		{"own.test", "/", "own"},
		{"c.test", "/", "front"},
		{"gate.example", "/app", "front"},
		{"gate.example", "/.well-known/acme-challenge/token", ""},
		{"other.example", "/", "ingress"},
		{"", "/", "ingress"},
	} {
		for _, secure := range []bool{false, true} {
			at, want := "10.0.0.1:80", c.want
			if secure {
				at = "10.0.0.1:443"
				if want != "" {
					want += "-s"
				}
			}
			found := table.Find(Connection{Local: netip.MustParseAddrPort(at), Secure: secure, Name: c.host}, c.host, request(c.path))
			got := ""
			if found.Route != nil {
				got = found.Listener.Name
			}
			if got != want || found.Misdirected {
				t.Errorf("%s%s, TLS %v: %q, want %q", c.host, c.path, secure, got, want)
			}
		}
	}
	if found := table.Find(Connection{Local: netip.MustParseAddrPort("10.0.0.9:80")}, "a.test", request("/")); found.Route == nil || found.Listener.Name != "addressed" {
		t.Errorf("on an address of its own: %+v", found)
	}
	for _, c := range []struct {
		name, host  string
		misdirected bool
	}{{"own.test", "a.test", true}, {"a.test", "own.test", true}, {"a.test", "b.test", false}, {"", "a.test", false}, {"a.test", "other.example", false}} {
		found := table.Find(Connection{Local: netip.MustParseAddrPort("10.0.0.1:443"), Secure: true, Name: c.name}, c.host, request("/app"))
		if found.Misdirected != c.misdirected {
			t.Errorf("%q for %q: %+v", c.name, c.host, found)
		}
	}
}

// TestApartStreams: a listener for TLS takes no host of Ingresses, except theirs for TLS.
func TestApartStreams(t *testing.T) {
	streams, refused := NewStreams(shared())
	if len(refused) != 0 {
		t.Error(refused)
	}
	site := streams.At(netip.MustParseAddrPort("10.0.0.1:443"), false)
	for name, want := range map[string]string{
		"a.test": "ingress-s", "b.test": "ingress-s", "y.w.test": "ingress-s", "B.TEST.": "ingress-s", "pass.test": "ingress-pass", "tls.test": "tls-own",
		"own.test": "own-s", "other.example": "ingress-s", "": "ingress-s",
	} {
		listener, stream := site.Find(name)
		if listener == nil || listener.Name != want || (stream == nil) != listener.IsWeb() {
			t.Errorf("%q: %+v, want %s", name, listener, want)
		}
	}
}
