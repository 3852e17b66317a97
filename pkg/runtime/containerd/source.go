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

// puller chooses the endpoints of all pulls of the process.
type puller struct {
	Pulls
	dirs   []string // with hosts.toml files
	joined string   // the same, in the form of containerd's configuration

	mu         sync.Mutex
	reported   error            // the last error of registries.yaml
	file       *registries.File // that transports belong to
	transports map[transportKey]*http.Transport
}

// transportKey identifies a transport that pulls can share. Each state of the file has TLS configurations of its own.
type transportKey struct {
	host string
	tls  *tls.Config
	last bool
}

// mirrorTimeout limits the dial of an endpoint if another one can be tried after it.
const mirrorTimeout = 5 * time.Second

// source is the image of one pull, at the endpoints that the configuration chooses.
type source struct {
	remotes.Resolver
	reference string
	pod       *credentials // of the pull
}

var (
	_ transfer.ImageFetcher              = (*source)(nil)
	_ transfer.ImageResolverOptionSetter = (*source)(nil)
)

// source returns the source for a pull, nil if the pull has settings of its own, as by ctr's flags. containerd then does it unchanged.
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
	one := &pull{puller: p, file: file, reference: r.Image(), pod: pod, failed: &failedHosts{}}
	resolver := docker.NewResolver(docker.ResolverOptions{Headers: headers, Hosts: func(host string) ([]docker.RegistryHost, error) {
		return one.hosts(ctx, host)
	}})
	return &source{Resolver: resolver, reference: r.Image(), pod: pod}, nil
}

// unpack returns the private fields of containerd's registry type. It encodes the value as a message, because there is no accessor.
func unpack(ctx context.Context, r *ociregistry.OCIRegistry, streams *credentials) (*transfertypes.RegistryResolver, http.Header, error) {
	packed, err := r.MarshalAny(ctx, streams)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the settings of a pull: %w", err)
	}
	var message transfertypes.OCIRegistry
	if err := typeurl.UnmarshalTo(packed, &message); err != nil {
		return nil, nil, fmt.Errorf("reading the settings of a pull: %w", err)
	}
	resolver := message.Resolver
	if message.Reference != r.Image() || resolver == nil {
		return nil, nil, errors.New("reading the settings of a pull: this version of containerd encodes them differently")
	}
	headers := http.Header{}
	for name, value := range resolver.Headers {
		headers.Set(name, value)
	}
	return resolver, headers, nil
}

// String is the name of the pull in containerd's progress messages.
func (s *source) String() string { return "OCI Registry (" + s.reference + ")" }

// Image returns the full reference of the image.
func (s *source) Image() string { return s.reference }

// Resolve returns the descriptor of the image.
func (s *source) Resolve(ctx context.Context) (string, ocispec.Descriptor, error) {
	return s.Resolver.Resolve(ctx, s.reference)
}

// Fetcher returns a fetcher of content.
func (s *source) Fetcher(ctx context.Context, ref string) (transfer.Fetcher, error) {
	return s.Resolver.Fetcher(ctx, ref)
}

// SetResolverOptions sets the limits of downloads.
func (s *source) SetResolverOptions(options ...transfer.ImageResolverOption) {
	if r, ok := s.Resolver.(remotes.ResolverWithOptions); ok {
		r.SetOptions(options...)
	}
}

// Close closes the stream of credentials.
func (s *source) Close() { s.pod.Close() }

// hostDir returns the directory with a registry's hosts.toml. A directory of the registry goes before any _default directory.
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

// transport returns the transport for an endpoint. It is kept for later pulls until the file changes, unless the file does not name
// the host: images can name any number of hosts. last is false if another endpoint can be tried, so that the dial is short.
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
			t.DialContext = (&net.Dialer{Timeout: mirrorTimeout, KeepAlive: 30 * time.Second}).DialContext
		}
		if file.MentionsHost(e.Host) {
			p.transports[key] = t
		}
	}
	return t
}
