package containerd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	transfertypes "github.com/containerd/containerd/api/types/transfer"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/containerd/v2/core/remotes/docker/config"
	"github.com/containerd/containerd/v2/core/transfer"
	ociregistry "github.com/containerd/containerd/v2/core/transfer/registry"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/coracle-dev/coracle/pkg/runtime/registries"
)

// puller answers for all pulls of a process.
type puller struct {
	Pulls
	dirs   []string // with hosts.toml files
	joined string   // the same as containerd's configuration has them

	mu         sync.Mutex
	said       error            // what was last wrong with the file
	file       *registries.File // which transports are for
	transports map[transportKey]*http.Transport
}

// transportKey is what connections can be shared by. A configuration of TLS belongs to one state of the file.
type transportKey struct {
	host string
	tls  *tls.Config
	last bool
}

// patience is how long an endpoint may take to be dialed that is not the last one to ask.
const patience = 5 * time.Second

// source is one pull: an image of a registry, by way of where our configuration says.
type source struct {
	remotes.Resolver
	reference string
	pod       *credentials // that came with the pull
}

var (
	_ transfer.ImageFetcher              = (*source)(nil)
	_ transfer.ImageResolverOptionSetter = (*source)(nil)
)

// source takes over a pull. It returns nil for one that brought settings of its own, as ctr's flags make it: those are
// containerd's to follow.
func (p *puller) source(ctx context.Context, r *ociregistry.OCIRegistry) (*source, error) {
	pod := newCredentials(r.Image())
	message, headers, err := unpack(ctx, r, pod)
	if err != nil {
		pod.Close()
		return nil, err
	}
	if message.HostDir != "" && message.HostDir != p.joined || message.DefaultScheme != "" || message.HttpDebug != transfertypes.HTTPDebug_DISABLED {
		pod.Close()
		return nil, nil
	}
	pod.known = message.AuthStream != ""
	file, err := p.state()
	if err != nil {
		pod.Close()
		return nil, err
	}
	one := &pull{puller: p, file: file, reference: r.Image(), pod: pod, dead: &dead{}}
	resolver := docker.NewResolver(docker.ResolverOptions{Headers: headers, Hosts: func(host string) ([]docker.RegistryHost, error) {
		return one.hosts(ctx, host)
	}})
	return &source{Resolver: resolver, reference: r.Image(), pod: pod}, nil
}

// unpack finds out what a registry of containerd's holds, by the message that it would be sent as: there is no other way.
func unpack(ctx context.Context, r *ociregistry.OCIRegistry, streams *credentials) (*transfertypes.RegistryResolver, http.Header, error) {
	packed, err := r.MarshalAny(ctx, streams)
	if err != nil {
		return nil, nil, fmt.Errorf("looking into a pull: %w", err)
	}
	var message transfertypes.OCIRegistry
	if err := typeurl.UnmarshalTo(packed, &message); err != nil {
		return nil, nil, fmt.Errorf("looking into a pull: %w", err)
	}
	resolver := message.Resolver
	if message.Reference != r.Image() || resolver == nil {
		return nil, nil, errors.New("looking into a pull: containerd describes it in another way than we know")
	}
	headers := http.Header{}
	for name, value := range resolver.Headers {
		headers.Set(name, value)
	}
	return resolver, headers, nil
}

// String is how containerd names the pull in what it says of its progress.
func (s *source) String() string { return "OCI Registry (" + s.reference + ")" }

// Image is the image's whole name.
func (s *source) Image() string { return s.reference }

// Resolve finds out which content the name stands for.
func (s *source) Resolve(ctx context.Context) (string, ocispec.Descriptor, error) {
	return s.Resolver.Resolve(ctx, s.reference)
}

// Fetcher gets content.
func (s *source) Fetcher(ctx context.Context, ref string) (transfer.Fetcher, error) {
	return s.Resolver.Fetcher(ctx, ref)
}

// SetResolverOptions takes the limits of downloads.
func (s *source) SetResolverOptions(options ...transfer.ImageResolverOption) {
	if r, ok := s.Resolver.(remotes.ResolverWithOptions); ok {
		r.SetOptions(options...)
	}
}

// Close ends the pull.
func (s *source) Close() { s.pod.Close() }

// hostDir finds a registry's directory with a hosts.toml. One of its own in any place goes before a _default.
func (p *puller) hostDir(host string) (string, error) {
	fallback := ""
	for _, root := range p.dirs {
		dir, err := config.HostDirFromRoot(root)(host)
		switch {
		case errdefs.IsNotFound(err):
		case err != nil:
			return "", fmt.Errorf("looking for hosts.toml: %w", err)
		case filepath.Base(dir) != "_default":
			return dir, nil
		case fallback == "":
			fallback = dir
		}
	}
	if fallback == "" {
		return "", errdefs.ErrNotFound
	}
	return fallback, nil
}

// transport keeps connections to an endpoint for later pulls, until the file changes. Where there is another one to ask
// after it, it is not waited for as long as containerd would. A host that only an image names is forgotten after the pull:
// people can name as many as they like.
func (p *puller) transport(file *registries.File, e registries.Endpoint, last bool) *http.Transport {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.file != file {
		for _, t := range p.transports {
			t.CloseIdleConnections()
		}
		p.file, p.transports = file, map[transportKey]*http.Transport{}
	}
	key := transportKey{e.Host, e.TLS, last}
	t, ok := p.transports[key]
	if !ok {
		t = docker.DefaultHTTPTransport(e.TLS.Clone())
		if !last {
			t.DialContext = (&net.Dialer{Timeout: patience, KeepAlive: 30 * time.Second}).DialContext
		}
		if file.Names(e.Host) {
			p.transports[key] = t
		}
	}
	return t
}
