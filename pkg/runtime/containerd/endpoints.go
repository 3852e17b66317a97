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

// pull is what the endpoints of one pull have in common.
type pull struct {
	*puller
	file      *registries.File
	reference string
	pod       *credentials
	dead      *dead
}

// hosts lists where the image's registry is asked, in order.
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

// host is an endpoint in containerd's words.
func (p *pull) host(e registries.Endpoint, repository string, last bool) docker.RegistryHost {
	var next http.RoundTripper = p.transport(p.file, e, last)
	if _, port, _ := net.SplitHostPort(e.Host); e.Scheme == "http" && e.TLS != nil && port != "80" {
		// As containerd has it for hosts.toml: who says something of TLS means it, if the other end speaks it.
		e.Scheme, next = "https", docker.NewHTTPFallback(next)
	}
	client := &http.Client{Transport: &renamer{
		next: next, dead: p.dead, scheme: e.Scheme, host: e.Host,
		from: e.Path + "/" + repository + "/", to: e.Path + "/" + e.Repository + "/",
	}}
	authorizer := docker.NewDockerAuthorizer(docker.WithAuthClient(client), docker.WithAuthCreds(p.login(e)))
	if e.Repository != repository {
		authorizer = scoped{authorizer, e.Repository}
	}
	return docker.RegistryHost{Client: client, Authorizer: authorizer, Scheme: e.Scheme, Host: e.Host, Path: e.Path,
		Capabilities: docker.HostCapabilityPull | docker.HostCapabilityResolve | docker.HostCapabilityReferrers}
}

// login gives an endpoint what it is to be told: a registry the pod's credentials if there are any, a mirror ours if there
// are any. Whom it redirects to learns nothing.
func (p *pull) login(e registries.Endpoint) func(host string) (user, secret string, err error) {
	return func(host string) (string, string, error) {
		if host != e.Host {
			return "", "", nil
		}
		if !e.Own && e.Auth.Known() {
			return spoken(e.Auth)
		}
		user, secret, err := p.pod.Get(host)
		if err != nil || secret != "" {
			return user, secret, err
		}
		return spoken(e.Auth)
	}
}

// loginAt is login for what a hosts.toml names.
func (p *pull) loginAt(registry string) func(host string) (user, secret string, err error) {
	return func(host string) (string, string, error) {
		return p.login(registries.Endpoint{Host: host, Auth: p.file.Auth(host), Own: registries.Same(host, registry)})(host)
	}
}

// spoken are credentials as containerd has them: a token is a secret without a user.
func spoken(a registries.Auth) (user, secret string, err error) {
	if a.User != "" {
		return a.User, a.Password, nil
	}
	return "", a.IdentityToken, nil
}

// renamer asks an endpoint for a repository by the name that it has there.
type renamer struct {
	next         http.RoundTripper
	dead         *dead
	scheme, host string
	from, to     string // how paths begin
}

// RoundTrip makes a request. What the endpoint redirects to elsewhere is passed as it is.
func (r *renamer) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != r.scheme || req.URL.Host != r.host {
		return r.next.RoundTrip(req)
	}
	if err := r.dead.at(r.host); err != nil {
		return nil, err
	}
	if rest, ok := strings.CutPrefix(req.URL.Path, r.from); ok && r.from != r.to {
		req = req.Clone(req.Context())
		req.URL = &url.URL{Scheme: req.URL.Scheme, Host: req.URL.Host, Path: r.to + rest, RawQuery: req.URL.RawQuery}
	}
	resp, err := r.next.RoundTrip(req)
	if err != nil && req.Context().Err() == nil {
		r.dead.note(r.host, err)
	}
	return resp, err
}

// dead remembers for the length of a pull which endpoints cannot be dialed. Each layer would else wait for a mirror anew.
type dead struct {
	mu    sync.Mutex
	hosts map[string]error
}

func (d *dead) at(host string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.hosts[host]
}

func (d *dead) note(host string, err error) {
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

// scoped asks for tokens for the name that a repository has at the endpoint, and not for the other one, which a server of
// tokens may refuse to know.
type scoped struct {
	docker.Authorizer
	repository string
}

// Authorize sets the header with the token.
func (s scoped) Authorize(ctx context.Context, req *http.Request) error {
	return s.Authorizer.Authorize(docker.ContextWithAppendPullRepositoryScope(unscoped{ctx}, s.repository), req)
}

// unscoped hides the scopes that containerd keeps in a context, whose key is its own. Nothing else that it keeps there
// is a list of texts.
type unscoped struct{ context.Context }

// Value is the context's, but for scopes.
func (u unscoped) Value(key any) any {
	value := u.Context.Value(key)
	if _, ok := value.([]string); ok {
		return nil
	}
	return value
}
