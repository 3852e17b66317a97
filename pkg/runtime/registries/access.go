package registries

import (
	"crypto/tls"
	"crypto/x509"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// configs reads the settings of registries and endpoints. A key that is an address has an effect only if there is none with its host.
func (p *parser) configs(n *yaml.Node, at string) {
	var addresses []func()
	p.entries(n, at, func(name, value *yaml.Node, key string) {
		var a access
		p.fields(value, key, map[string]field{
			"auth": func(n *yaml.Node, key string) { a.auth = p.auth(n, key) },
			"tls":  func(n *yaml.Node, key string) { a.tls = p.tls(n, key) },
		})
		if strings.Contains(name.Value, "://") {
			addresses = append(addresses, func() { p.address(name, key, a) })
			return
		}
		host := p.host(name, key)
		if host == anyHost && a.auth.Known() {
			p.warn(name, "configs.%q.auth is told to every registry that an image names and that asks for it, whoever runs it: name the registries that it is for", host)
		}
		if _, twice := p.out.configs[host]; !twice || p.before(name, key, host, dockerHost) {
			p.out.configs[host] = a
		}
	})
	for _, enter := range addresses {
		enter()
	}
}

// address adds the settings under a key that is an address.
func (p *parser) address(name *yaml.Node, key string, a access) {
	u, err := endpointURL(name.Value)
	if err != nil {
		p.fail(name, key, "%v", err)
		return
	}
	host := Canonical(u.Host)
	if _, twice := p.out.configs[host]; twice {
		p.warn(name, "configs.%q does nothing: configs.%q is there", name.Value, host)
		return
	}
	p.warn(name, "configs.%q is taken as configs.%q: write it so", name.Value, host)
	p.out.configs[host] = a
}

// auths reads the outdated form of configs.*.auth, whose keys may be addresses.
func (p *parser) auths(n *yaml.Node, at string) {
	p.entries(n, at, func(name, value *yaml.Node, key string) {
		u, err := endpointURL(name.Value)
		if err != nil {
			p.fail(name, key, "%v", err)
			return
		}
		host := Canonical(u.Host)
		p.warn(name, "auths is out of use: write configs.%q.auth", host)
		a := p.out.configs[host]
		if !a.auth.Known() {
			a.auth = p.auth(value, key)
		}
		p.out.configs[host] = a
	})
}

// auth reads credentials. Their values must not get into errors.
func (p *parser) auth(n *yaml.Node, at string) (a Auth) {
	var basic string
	p.fields(n, at, map[string]field{
		"username":       func(n *yaml.Node, key string) { a.User = p.text(n, key) },
		"password":       func(n *yaml.Node, key string) { a.Password = p.text(n, key) },
		"identity_token": func(n *yaml.Node, key string) { a.IdentityToken = p.text(n, key) },
		"token": func(n *yaml.Node, key string) {
			p.warn(n, "%s does nothing, as in k3s: a refresh token is an identity_token", key)
		},
		"auth": func(n *yaml.Node, key string) {
			basic = p.text(n, key)
			if _, _, ok := userPassword(basic); basic != "" && !ok {
				p.fail(n, key, `this has to be "user:password" in base64`)
			}
		},
	})
	switch {
	case (a.User == "") != (a.Password == ""):
		p.fail(n, at, "a username goes with a password")
	case a.User == "" && a.IdentityToken == "" && basic != "": // Docker writes both a token and auth, with only the name in auth
		a.User, a.Password, _ = userPassword(basic)
	}
	return a
}

// tls reads TLS settings.
func (p *parser) tls(n *yaml.Node, at string) *tls.Config {
	type file struct {
		data []byte
		set  bool
	}
	var ca, cert, key file
	config := &tls.Config{}
	into := func(f *file) field {
		return func(n *yaml.Node, key string) {
			if path := p.text(n, key); path != "" {
				*f = file{p.content(n, key, path), true}
			}
		}
	}
	p.fields(n, at, map[string]field{
		"ca_file": into(&ca), "cert_file": into(&cert), "key_file": into(&key),
		"insecure_skip_verify": func(n *yaml.Node, key string) {
			if err := n.Decode(&config.InsecureSkipVerify); err != nil {
				p.fail(n, key, "this has to be true or false")
			}
		},
	})
	if ca.data != nil {
		config.RootCAs = systemPool()
		if !config.RootCAs.AppendCertsFromPEM(ca.data) {
			p.fail(n, at+".ca_file", "the file holds no certificate in PEM")
		}
	}
	if cert.set != key.set {
		p.fail(n, at, "cert_file and key_file go together")
	}
	if cert.data != nil && key.data != nil {
		pair, err := tls.X509KeyPair(cert.data, key.data)
		if err != nil {
			p.fail(n, at, "cert_file and key_file are no pair: %v", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config
}

// content returns the content of a file that a key names.
func (p *parser) content(n *yaml.Node, key, path string) []byte {
	if !filepath.IsAbs(path) {
		p.fail(n, key, "the path %s has to begin with /", path)
		return nil
	}
	data, err := p.read(p.at(path))
	if err != nil {
		p.fail(n, key, "%v", err)
		return nil
	}
	return data
}

// systemPool returns the machine's certificate authorities, an empty pool if it has none.
func systemPool() *x509.CertPool {
	pool, err := x509.SystemCertPool()
	if err != nil {
		return x509.NewCertPool()
	}
	return pool
}
