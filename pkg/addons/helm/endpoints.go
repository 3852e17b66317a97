package helm

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/coracle-dev/coracle/pkg/runtime/registries"
)

// mirrorPatience is the time limit for dialing an endpoint if another one follows, as for images.
const mirrorPatience = 5 * time.Second

// endpoints lists the endpoints of a repository in order. It reports false if registries.yaml does not name the registry.
func (a access) endpoints(ref registry.Reference) ([]registries.Endpoint, bool, error) {
	if a.mirrors == nil {
		return nil, false, nil
	}
	file, wrong := a.mirrors.Now()
	if file == nil {
		return nil, false, fmt.Errorf("no chart is taken from a registry until this is mended: %w", wrong)
	}
	out, configured := file.Endpoints(ref.Registry, ref.Repository, a.noDefault)
	if configured && len(out) == 0 {
		return nil, false, fmt.Errorf("registries.yaml names no endpoint for %s, and --disable-default-registry-endpoint is set", ref.Registry)
	}
	return out, configured, nil
}

// clientFor makes a client of an endpoint for the charts of a registry. TLS settings of a HelmChart apply to the registry
// itself, where they take precedence over registries.yaml.
func (a access) clientFor(e registries.Endpoint, host string, last bool) *auth.Client {
	client := a.client
	if !e.Own || e.TLS != nil && !a.ownTLS {
		patience := dialPatience
		if !last {
			patience = mirrorPatience
		}
		client = clientWith(e.TLS.Clone(), patience)
	}
	asking := *client
	asking.Transport = renamer{next: client.Transport, endpoint: e, registry: registries.Canonical(host)}
	return authenticating(&asking, func(at string) auth.Credential {
		if at != e.Host {
			return auth.EmptyCredential
		}
		return a.credential(e)
	})
}

// authenticating makes a client that sends the credential of a host that asks for one.
func authenticating(client *http.Client, credential func(host string) auth.Credential) *auth.Client {
	return &auth.Client{Client: client, Cache: auth.NewSingleContextCache(),
		Credential: func(_ context.Context, host string) (auth.Credential, error) { return credential(host), nil }}
}

// credential is the login for an endpoint. A registry gets the HelmChart's login if there is one. A mirror gets the login of
// registries.yaml or the one that dockerRegistrySecret has for the mirror, never authSecret. If the HelmChart sets
// whom to trust, a host that a repository's index names gets no login of registries.yaml, and no host does if a tenant may have written the HelmChart.
func (a access) credential(e registries.Endpoint) auth.Credential {
	l, _ := a.dockerLogin(e.Host)
	fromFile := e.Auth.Known()
	if e.Own {
		l = a.registryLogin(e.Host)
		fromFile = fromFile && l == login{} && !((a.otherHost || a.tenant) && (a.ownTLS || a.plainHTTP))
	}
	switch {
	case fromFile && e.Auth.User == "":
		return auth.Credential{RefreshToken: e.Auth.IdentityToken}
	case fromFile:
		return auth.Credential{Username: e.Auth.User, Password: e.Auth.Password}
	}
	return auth.Credential{Username: l.user, Password: l.password}
}

// registryClient makes a client that sends the HelmChart's login to a registry that asks for one.
func (a access) registryClient() *auth.Client {
	return authenticating(a.client, func(host string) auth.Credential {
		l := a.registryLogin(host)
		return auth.Credential{Username: l.user, Password: l.password}
	})
}

// registryLogin is the HelmChart's login for a registry.
func (a access) registryLogin(host string) login {
	if l, ok := a.dockerLogin(host); ok {
		return l
	}
	return a.login
}

// dockerLogin is the login of dockerRegistrySecret for a host.
func (a access) dockerLogin(host string) (login, bool) {
	if l, ok := a.registries[host]; ok {
		return l, true
	}
	for _, name := range slices.Sorted(maps.Keys(a.registries)) {
		if registries.Same(name, host) {
			return a.registries[name], true
		}
	}
	return login{}, false
}

// renamer rewrites request paths to the path of an endpoint's API. Redirects to other hosts are not rewritten.
type renamer struct {
	next     http.RoundTripper
	endpoint registries.Endpoint
	registry string // the mirrored one
}

// RoundTrip sends the rewritten request.
func (r renamer) RoundTrip(req *http.Request) (*http.Response, error) {
	e := r.endpoint
	to := e.Path + "/" + e.Repository + "/"
	path, matches := strings.CutPrefix(req.URL.Path, "/v2/"+e.Repository+"/")
	if !matches { // the link to the next page of a list has the endpoint's path
		path, matches = strings.CutPrefix(req.URL.Path, to)
	}
	if req.URL.Host != e.Host || !matches {
		return r.next.RoundTrip(req)
	}
	req = req.Clone(req.Context())
	req.URL.Path, req.URL.RawPath = to+path, ""
	if !e.Own {
		query := req.URL.Query()
		query.Set("ns", r.registry)
		req.URL.RawQuery = query.Encode()
	}
	return r.next.RoundTrip(req)
}
