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

// mirrorPatience is how long an endpoint may take to be dialed that is not the last one to ask, as for images.
const mirrorPatience = 5 * time.Second

// endpoints lists where a chart is to be looked for, in order. It reports false if registries.yaml says nothing about the
// registry.
func (a access) endpoints(ref registry.Reference) ([]registries.Endpoint, bool, error) {
	if a.mirrors == nil {
		return nil, false, nil
	}
	file, wrong := a.mirrors.Now()
	if file == nil {
		return nil, false, fmt.Errorf("no chart is taken from a registry until this is mended: %w", wrong)
	}
	out, ours := file.Endpoints(ref.Registry, ref.Repository, a.noDefault)
	if ours && len(out) == 0 {
		return nil, false, fmt.Errorf("registries.yaml names no endpoint for %s, and --disable-default-registry-endpoint is set", ref.Registry)
	}
	return out, ours, nil
}

// clientFor asks an endpoint for charts of a registry. What a chart says of TLS is meant for the registry itself, and goes
// before what registries.yaml has.
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
	return &auth.Client{
		Client: &asking,
		Cache:  auth.NewSingleContextCache(),
		Credential: func(_ context.Context, at string) (auth.Credential, error) {
			if at != e.Host {
				return auth.EmptyCredential, nil
			}
			return a.credential(e), nil
		},
	}
}

// credential is what an endpoint is told. A registry gets the chart's login if there is one, a mirror what registries.yaml
// has for it, and of the chart's only what names it: authSecret is for no mirror. What a chart trusts for a repository
// does not bring our login out of the file to a registry that the repository's index leads to.
func (a access) credential(e registries.Endpoint) auth.Credential {
	l, _ := a.dockerLogin(e.Host)
	ours := e.Auth.Known()
	if e.Own {
		l = a.registryLogin(e.Host)
		ours = ours && l == login{} && !(a.elsewhere && (a.ownTLS || a.plainHTTP))
	}
	switch {
	case ours && e.Auth.User == "":
		return auth.Credential{RefreshToken: e.Auth.IdentityToken}
	case ours:
		return auth.Credential{Username: e.Auth.User, Password: e.Auth.Password}
	}
	return auth.Credential{Username: l.user, Password: l.password}
}

// registryClient logs in where it is asked to.
func (a access) registryClient() *auth.Client {
	return &auth.Client{
		Client: a.client,
		Cache:  auth.NewSingleContextCache(),
		Credential: func(_ context.Context, host string) (auth.Credential, error) {
			l := a.registryLogin(host)
			return auth.Credential{Username: l.user, Password: l.password}, nil
		},
	}
}

// registryLogin is the chart's login at a registry.
func (a access) registryLogin(host string) login {
	if l, ok := a.dockerLogin(host); ok {
		return l
	}
	return a.login
}

// dockerLogin is the login that dockerRegistrySecret has for a host.
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

// renamer asks an endpoint for a repository where it has its API. What it redirects to elsewhere is passed as it is.
type renamer struct {
	next     http.RoundTripper
	endpoint registries.Endpoint
	registry string // that the endpoint stands for
}

// RoundTrip makes a request.
func (r renamer) RoundTrip(req *http.Request) (*http.Response, error) {
	e := r.endpoint
	to := e.Path + "/" + e.Repository + "/"
	path, ours := strings.CutPrefix(req.URL.Path, "/v2/"+e.Repository+"/")
	if !ours { // the next page of a list is by the endpoint's own words
		path, ours = strings.CutPrefix(req.URL.Path, to)
	}
	if req.URL.Host != e.Host || !ours {
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
