package dataplane

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// policies say which certificates serve which hosts, and which clients need one. The names in a certificate do not: anybody can make one with
// the name of another's host. Caddy uses the first policy that matches, so addresses come before all addresses, and names before wildcards.
func policies(listeners []gateway.Listener, certificates []gateway.Certificate, fallback gateway.Certificate) (out []object) {
	usable := map[string]string{}
	for _, c := range certificates {
		usable[c.Source] = tagOf(c)
	}
	at := func(own bool) (some []gateway.Listener, addresses []string) {
		for _, l := range listeners {
			if own == (len(l.Addresses) > 0) {
				some = append(some, l)
				addresses = append(addresses, l.Addresses...)
			}
		}
		return some, addresses
	}
	others := object{"certificate_selection": object{"any_tag": []string{tagOf(fallback)}}, "fallback_sni": fallbackName}
	own, addresses := at(true)
	out = policiesAt(own, usable, fallback)
	if len(own) > 0 {
		rest := maps.Clone(others)
		rest["match"] = object{handshakeModule: handshake{Addresses: addresses}}
		out = append(out, rest)
	}
	rest, _ := at(false)
	return append(append(out, policiesAt(rest, usable, fallback)...), others)
}

// policiesAt returns the policies of listeners that all have addresses, or none.
func policiesAt(listeners []gateway.Listener, usable map[string]string, fallback gateway.Certificate) (out []object) {
	type of struct {
		listener gateway.Listener
		host     string
	}
	var all []of
	for _, l := range listeners {
		for host := range l.Certificates {
			all = append(all, of{l, cmp.Or(host, l.Host)})
		}
		if _, whole := l.Certificates[""]; !whole && l.ClientAuthorities != "" { // whatever the certificate, clients need one
			all = append(all, of{l, l.Host})
		}
	}
	// A listener's own host first decides, as it does for requests; then the host of the certificate.
	slices.SortStableFunc(all, func(a, b of) int {
		return cmp.Or(specific(a.listener.Host, b.listener.Host), specific(a.host, b.host))
	})
	for _, o := range all {
		sources := o.listener.Certificates[o.host]
		if o.host == o.listener.Host {
			sources = slices.Concat(sources, o.listener.Certificates[""])
		}
		policy := object{"certificate_selection": object{"any_tag": tags(sources, usable, fallback)}, "fallback_sni": fallbackName}
		match := handshake{Addresses: o.listener.Addresses, Host: o.host, OneLabel: o.listener.HostsApart, Within: o.listener.Host, Others: !o.listener.HostsApart}
		policy["match"] = object{handshakeModule: match}
		if o.listener.ClientAuthorities != "" {
			policy["client_authentication"] = authentication(o.listener, fallback)
		}
		out = append(out, policy)
	}
	return out
}

// authentication says which certificates clients need. If none of a listener's authorities is one, nobody has the certificate.
func authentication(l gateway.Listener, fallback gateway.Certificate) object {
	if l.AnyClient {
		return object{"mode": "request"}
	}
	trusted := certificatesIn(l.ClientAuthorities)
	if len(trusted) == 0 {
		trusted = certificatesIn(fallback.Chain)
	}
	return object{"mode": "require_and_verify", "ca": object{"provider": "inline", "trusted_ca_certs": trusted}}
}

func certificatesIn(text string) (out []string) {
	for block, rest := pem.Decode([]byte(text)); block != nil; block, rest = pem.Decode(rest) {
		if _, err := x509.ParseCertificate(block.Bytes); err == nil {
			out = append(out, base64.StdEncoding.EncodeToString(block.Bytes))
		}
	}
	return out
}

// handshake is the matcher of Caddy's for TLS handshakes.
type handshake struct {
	Addresses []string `json:"addresses,omitempty"` // of the gateway; none means all
	Host      string   `json:"host,omitempty"`      // that the client names: a name, a wildcard, or empty for all
	OneLabel  bool     `json:"one_label,omitempty"` // that there is in a wildcard's place
	Within    string   `json:"within,omitempty"`    // the listener's host, which it must be too
	Others    bool     `json:"others,omitempty"`    // that no listener has for itself

	serving *serving
}

// CaddyModule implements caddy.Module.
func (h handshake) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "tls.handshake_match." + handshakeModule, New: func() caddy.Module { return &handshake{serving: h.serving} }}
}

// Match implements caddytls.ConnectionMatcher.
func (h handshake) Match(hello *tls.ClientHelloInfo) bool {
	local, ok := hello.Conn.LocalAddr().(interface{ AddrPort() netip.AddrPort })
	if len(h.Addresses) > 0 {
		if !ok || !slices.ContainsFunc(h.Addresses, func(text string) bool {
			address, err := netip.ParseAddr(text)
			return err == nil && address.Unmap() == local.AddrPort().Addr().Unmap()
		}) {
			return false
		}
	}
	if h.Others && ok && h.serving.current.Load().table.Apart(local.AddrPort(), hello.ServerName) {
		return false
	}
	name := strings.ToLower(strings.TrimSuffix(hello.ServerName, "."))
	return covers(h.Within, name, false) && covers(h.Host, name, h.OneLabel)
}

// covers reports whether a host, which may be a wildcard or empty, has a name.
func covers(host, name string, oneLabel bool) bool {
	suffix, wild := strings.CutPrefix(strings.ToLower(host), "*")
	if !wild {
		return host == "" || suffix == name
	}
	label, ok := strings.CutSuffix(name, suffix)
	return ok && label != "" && net.ParseIP(name) == nil && (!oneLabel || !strings.Contains(label, "."))
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

// tags returns the tags of those certificates that can be used. Of several Caddy takes one that is for the name which the client asks for, if there
// is one.
func tags(sources []string, usable map[string]string, fallback gateway.Certificate) (out []string) {
	for _, source := range sources {
		if tag, ok := usable[source]; ok {
			out = append(out, tag)
		}
	}
	if len(out) == 0 {
		return []string{tagOf(fallback)}
	}
	return out
}
