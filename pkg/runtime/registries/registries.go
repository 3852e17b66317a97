// Package registries reads the file registries.yaml, in the format of k3s: the mirrors of registries, the names that repositories have
// there, and credentials and TLS settings. It links nothing of containerd, so that the front can check the file before a start.
package registries

import (
	"crypto/tls"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// File is the content of a registries.yaml. The zero value is an empty file.
type File struct {
	// Warnings are about settings that have a better form, or no effect.
	Warnings []string

	mirrors map[string]mirror
	configs map[string]access
}

// anyHost is the name of the entry for all registries without an entry of their own.
const anyHost = "*"

// mirror is an entry of mirrors.
type mirror struct {
	endpoints []url.URL
	rewrites  []rewrite
}

// rewrite replaces the names of repositories that match.
type rewrite struct {
	pattern *regexp.Regexp
	with    string
}

// access is an entry of configs.
type access struct {
	auth Auth
	tls  *tls.Config // nil is the default
}

// Auth has credentials: a user with a password, or an identity token. The zero value is anonymous.
type Auth struct{ User, Password, IdentityToken string }

// Known reports whether there are credentials.
func (a Auth) Known() bool { return a != Auth{} }

// Endpoint is an address from which an image can be pulled.
type Endpoint struct {
	Scheme, Host string // http or https; host[:port]
	Path         string // in front of the repository, such as /v2
	Repository   string // the name of the image's repository at this endpoint
	Auth         Auth
	TLS          *tls.Config // nil is the default; callers must not change it
	// Own is set for the registry itself, not for its mirrors.
	Own bool
}

// Endpoints returns the endpoints for a repository of the registry host[:port], in the order in which they are to be tried. It reports
// false if the file has no entry for the registry. With noDefault, a registry that has mirrors is not among them.
func (f *File) Endpoints(host, repository string, noDefault bool) ([]Endpoint, bool) {
	host = Canonical(host)
	m, mirrored := f.mirrors[host]
	if !mirrored {
		m, mirrored = f.mirrors[anyHost]
	}
	own := f.endpoint(defaultEndpoint(host), repository)
	own.Own = true
	if !mirrored {
		_, configured := f.access(host)
		return []Endpoint{own}, configured
	}
	var out []Endpoint
	for i, at := range m.endpoints {
		e := f.endpoint(at, rewritten(m.rewrites, repository))
		e.Own = Canonical(at.Host) == host
		out = append(out, e)
		if i == len(m.endpoints)-1 && at == defaultEndpoint(host) {
			return out, true
		}
	}
	if !noDefault {
		out = append(out, own)
	}
	return out, true
}

// HasEntries reports whether the file has any entry.
func (f *File) HasEntries() bool { return f != nil && len(f.mirrors)+len(f.configs) > 0 }

// MentionsHost reports whether the file contains the registry or endpoint host[:port] by its name, not only as "*".
func (f *File) MentionsHost(host string) bool {
	host = Canonical(host)
	if _, ok := f.configs[host]; ok {
		return true
	}
	for registry, m := range f.mirrors {
		if registry == host || slices.ContainsFunc(m.endpoints, func(at url.URL) bool { return Canonical(at.Host) == host }) {
			return true
		}
	}
	return false
}

// HasSecrets reports whether the file contains passwords or tokens.
func (f *File) HasSecrets() bool {
	for _, a := range f.configs {
		if a.auth.Known() {
			return true
		}
	}
	return false
}

// Auth returns the credentials for host[:port].
func (f *File) Auth(host string) Auth {
	a, _ := f.access(Canonical(host))
	return a.auth
}

func (f *File) access(host string) (access, bool) {
	if a, ok := f.configs[host]; ok {
		return a, true
	}
	a, ok := f.configs[anyHost]
	return a, ok
}

func (f *File) endpoint(at url.URL, repository string) Endpoint {
	a, _ := f.access(Canonical(at.Host))
	return Endpoint{Scheme: at.Scheme, Host: at.Host, Path: at.Path, Repository: repository, Auth: a.auth, TLS: a.tls}
}

// rewritten applies the first rule that changes the name of a repository.
func rewritten(rules []rewrite, repository string) string {
	for _, r := range rules {
		if name := r.pattern.ReplaceAllString(repository, r.with); name != repository {
			return name
		}
	}
	return repository
}

// The names of Docker's registry in image references and in the network.
const dockerName, dockerHost = "docker.io", "registry-1.docker.io"

// Canonical returns the name host[:port] of a registry in image references. Docker's registry has several names.
func Canonical(host string) string {
	if host == dockerHost || host == "index."+dockerName {
		return dockerName
	}
	return host
}

// Same reports whether two names host[:port] mean the same registry.
func Same(a, b string) bool { return Canonical(a) == Canonical(b) }

// defaultEndpoint is the endpoint of a registry itself.
func defaultEndpoint(host string) url.URL {
	at := url.URL{Scheme: defaultScheme(host), Host: host, Path: "/v2"}
	if host == dockerName {
		at.Host = dockerHost
	}
	return at
}

// defaultScheme is https, and http for loopback addresses with a port other than 443.
func defaultScheme(host string) string {
	name, port, err := net.SplitHostPort(host)
	if err != nil || port == "443" {
		return "https"
	}
	if ip := net.ParseIP(name); strings.EqualFold(name, "localhost") || ip != nil && ip.IsLoopback() {
		return "http"
	}
	return "https"
}
