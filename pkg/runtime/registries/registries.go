// Package registries knows the file registries.yaml, in the format of k3s: which mirrors stand for a registry, by what
// names they know its images, and how to log in there. It links nothing of containerd, so that what is wrong with the
// file can be said before anything starts.
package registries

import (
	"crypto/tls"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// File is what a registries.yaml says. The zero value says nothing.
type File struct {
	// Warnings are sentences about what is understood and had better be written otherwise.
	Warnings []string

	mirrors map[string]mirror
	configs map[string]access
}

// anyHost is the name of an entry that is for every registry without one of its own.
const anyHost = "*"

// mirror is an entry of mirrors.
type mirror struct {
	endpoints []url.URL
	rewrites  []rewrite
}

// rewrite gives repositories that match another name.
type rewrite struct {
	pattern *regexp.Regexp
	with    string
}

// access is an entry of configs.
type access struct {
	auth Auth
	tls  *tls.Config // nil is the default
}

// Auth is how to log in: a user with a password, or an identity token. The zero value is nobody.
type Auth struct{ User, Password, IdentityToken string }

// Known reports whether there is something to log in with.
func (a Auth) Known() bool { return a != Auth{} }

// Endpoint is one place to get an image from.
type Endpoint struct {
	Scheme, Host string // http or https; host[:port]
	Path         string // what comes before the repository, such as /v2
	Repository   string // the image's repository as it is called there
	Auth         Auth
	TLS          *tls.Config // nil is the default; not to be changed
	// Own is set for the registry itself, as against its mirrors.
	Own bool
}

// Endpoints returns where a repository of the registry host[:port] is to be looked for, in order. It reports false if the
// file says nothing about the registry. With noDefault a registry that has mirrors is not asked itself.
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

// Says reports whether the file says anything.
func (f *File) Says() bool { return f != nil && len(f.mirrors)+len(f.configs) > 0 }

// Names reports whether the file has the registry or endpoint host[:port] by its name, and not just by "*".
func (f *File) Names(host string) bool {
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

// Secret reports whether the file holds passwords or tokens.
func (f *File) Secret() bool {
	for _, a := range f.configs {
		if a.auth.Known() {
			return true
		}
	}
	return false
}

// Auth is how to log in at host[:port].
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

// rewritten applies the first rule that changes a repository's name.
func rewritten(rules []rewrite, repository string) string {
	for _, r := range rules {
		if name := r.pattern.ReplaceAllString(repository, r.with); name != repository {
			return name
		}
	}
	return repository
}

// Docker's registry has one name in images and another in the network.
const dockerName, dockerHost = "docker.io", "registry-1.docker.io"

// Canonical is the name host[:port] of a registry as images have it: Docker's has several.
func Canonical(host string) string {
	if host == dockerHost || host == "index."+dockerName {
		return dockerName
	}
	return host
}

// Same reports whether two names host[:port] are of one registry.
func Same(a, b string) bool { return Canonical(a) == Canonical(b) }

// defaultEndpoint is where a registry is found if nobody says otherwise.
func defaultEndpoint(host string) url.URL {
	at := url.URL{Scheme: defaultScheme(host), Host: host, Path: "/v2"}
	if host == dockerName {
		at.Host = dockerHost
	}
	return at
}

// defaultScheme is HTTPS, but for ports of this machine that are not HTTPS's.
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
