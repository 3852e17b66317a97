package streams

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"slices"
	"strings"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// terminations returns how TLS is spoken by the listeners that end it, by name. One without a certificate that can be used is left out.
func terminations(config gateway.Config) map[string]*tls.Config {
	out := map[string]*tls.Config{}
	pairs := map[string]*tls.Certificate{}
	for _, l := range config.Listeners {
		if l.Protocol != gateway.TLS {
			continue
		}
		byHost := map[string]*tls.Certificate{}
		for host, sources := range l.Certificates {
			for _, source := range sources {
				if _, known := pairs[source]; !known {
					pairs[source] = load(config.Certificates, source)
				}
				if pairs[source] != nil {
					byHost[strings.ToLower(host)] = pairs[source]
					break
				}
			}
		}
		if len(byHost) == 0 {
			continue
		}
		out[l.Name] = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			return choose(byHost, hello.ServerName)
		}}
		authenticate(out[l.Name], l)
	}
	return out
}

// load returns a certificate; nil if it cannot be used.
func load(all []gateway.Certificate, source string) *tls.Certificate {
	at := slices.IndexFunc(all, func(c gateway.Certificate) bool { return c.Source == source })
	if at < 0 {
		return nil
	}
	pair, err := tls.X509KeyPair([]byte(all[at].Chain), []byte(all[at].Key))
	if err != nil {
		return nil
	}
	return &pair
}

// choose returns the certificate of the most specific host that has a name.
func choose(byHost map[string]*tls.Certificate, name string) (*tls.Certificate, error) {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	for host := name; host != ""; {
		if c := byHost[host]; c != nil {
			return c, nil
		}
		_, parent, more := strings.Cut(strings.TrimPrefix(host, "*."), ".")
		if !more {
			break
		}
		host = "*." + parent
	}
	if c := byHost[""]; c != nil {
		return c, nil
	}
	return nil, errors.New("no certificate is for this host")
}

// authenticate asks clients for the certificates that a listener wants. If none of its authorities is one, nobody has such a certificate.
func authenticate(config *tls.Config, l gateway.Listener) {
	switch {
	case l.ClientAuthorities == "":
	case l.AnyClient:
		config.ClientAuth = tls.RequestClientCert
	default:
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		config.ClientCAs.AppendCertsFromPEM([]byte(l.ClientAuthorities))
	}
}
