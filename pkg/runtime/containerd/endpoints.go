package containerd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/containerd/v2/core/remotes/docker/config"
	"github.com/distribution/reference"

	"github.com/coracle-dev/coracle/pkg/runtime/registries"
)

// pull is one pull of an image, which may try several endpoints.
type pull struct {
	*puller
	file      *registries.File
	reference string
	pod       *credentials // of the pull
	failed    *failedHosts
}

// hosts returns the endpoints for the image's registry, in the order in which they are tried.
func (p *pull) hosts(ctx context.Context, host string) ([]docker.RegistryHost, error) {
	named, err := reference.ParseDockerRef(p.reference)
	if err != nil {
		return nil, err
	}
	repository := reference.Path(named)
	endpoints, ours := p.file.Endpoints(host, repository, p.NoDefault)
	if !ours {
		return config.ConfigureHosts(ctx, config.HostOptions{HostDir: p.hostDir, Credentials: p.loginAt(host)})(host)
	}
	if len(endpoints) == 0 {
		return nil, fmt.Errorf("registries.yaml names no endpoint for %s, and --disable-default-registry-endpoint is set", host)
	}
	out := make([]docker.RegistryHost, 0, len(endpoints))
	for i, e := range endpoints {
		out = append(out, p.host(e, repository, i == len(endpoints)-1))
	}
	return out, nil
}

// host returns an endpoint in containerd's type.
func (p *pull) host(e registries.Endpoint, repository string, last bool) docker.RegistryHost {
	var next http.RoundTripper = p.transport(p.file, e, last)
	if _, port, _ := net.SplitHostPort(e.Host); e.Scheme == "http" && e.TLS != nil && port != "80" {
		// As containerd does for hosts.toml: an http endpoint with TLS settings is tried with TLS first.
		e.Scheme, next = "https", docker.NewHTTPFallback(next)
	}
	client := &http.Client{Transport: &renamer{
		next: next, failed: p.failed, scheme: e.Scheme, host: e.Host,
		from: e.Path + "/" + repository + "/", to: e.Path + "/" + e.Repository + "/",
	}}
	authorizer := docker.NewDockerAuthorizer(docker.WithAuthClient(client), docker.WithAuthCreds(p.login(e)))
	if e.Repository != repository {
		authorizer = scoped{authorizer, e.Repository}
	}
	return docker.RegistryHost{Client: client, Authorizer: authorizer, Scheme: e.Scheme, Host: e.Host, Path: e.Path,
		Capabilities: docker.HostCapabilityPull | docker.HostCapabilityResolve | docker.HostCapabilityReferrers}
}

// login returns the credentials for an endpoint. For the registry itself those of the pull go before those of registries.yaml, for a
// mirror it is the other way round. Other hosts, to which the endpoint may redirect, get none.
func (p *pull) login(e registries.Endpoint) func(host string) (user, secret string, err error) {
	return func(host string) (string, string, error) {
		if host != e.Host {
			return "", "", nil
		}
		if !e.Own && e.Auth.Known() {
			return userSecret(e.Auth)
		}
		user, secret, err := p.pod.Get(host)
		if err != nil || secret != "" {
			return user, secret, err
		}
		return userSecret(e.Auth)
	}
}

// loginAt is login for the hosts of a hosts.toml file.
func (p *pull) loginAt(registry string) func(host string) (user, secret string, err error) {
	return func(host string) (string, string, error) {
		return p.login(registries.Endpoint{Host: host, Auth: p.file.Auth(host), Own: registries.Same(host, registry)})(host)
	}
}

// userSecret returns credentials in containerd's form, in which an identity token is a secret without a user.
func userSecret(a registries.Auth) (user, secret string, err error) {
	if a.User != "" {
		return a.User, a.Password, nil
	}
	return "", a.IdentityToken, nil
}

// renamer is a transport that requests a repository by its name at the endpoint.
type renamer struct {
	next         http.RoundTripper
	failed       *failedHosts
	scheme, host string
	from, to     string // the prefix of paths that is replaced, and its replacement
}

// RoundTrip implements http.RoundTripper. Requests to other hosts, after a redirect, stay as they are.
func (r *renamer) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != r.scheme || req.URL.Host != r.host {
		return r.next.RoundTrip(req)
	}
	if err := r.failed.at(r.host); err != nil {
		return nil, err
	}
	if rest, ok := strings.CutPrefix(req.URL.Path, r.from); ok && r.from != r.to {
		req = req.Clone(req.Context())
		req.URL = &url.URL{Scheme: req.URL.Scheme, Host: req.URL.Host, Path: r.to + rest, RawQuery: req.URL.RawQuery}
	}
	resp, err := r.next.RoundTrip(req)
	if err != nil && req.Context().Err() == nil {
		r.failed.note(r.host, err)
	}
	return resp, err
}

// failedHosts are the endpoints of one pull that cannot be dialed. Otherwise each layer would wait for the same mirror again.
type failedHosts struct {
	mu    sync.Mutex
	hosts map[string]error
}

func (d *failedHosts) at(host string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.hosts[host]
}

func (d *failedHosts) note(host string, err error) {
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "dial" {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hosts == nil {
		d.hosts = map[string]error{}
	}
	d.hosts[host] = fmt.Errorf("not dialed again: %w", op)
}

// scoped requests tokens for the name that a repository has at the endpoint. A token server may refuse a request that also has the
// name in the image reference.
type scoped struct {
	docker.Authorizer
	repository string
}

// Authorize sets the header with the token.
func (s scoped) Authorize(ctx context.Context, req *http.Request) error {
	return s.Authorizer.Authorize(docker.ContextWithAppendPullRepositoryScope(unscoped{ctx}, s.repository), req)
}

// unscoped hides the scopes that containerd keeps in a context. Their key is private, so they are recognised by their type, which no
// other value of containerd's has.
type unscoped struct{ context.Context }

// Value implements context.Context.
func (u unscoped) Value(key any) any {
	value := u.Context.Value(key)
	if _, ok := value.([]string); ok {
		return nil
	}
	return value
}
