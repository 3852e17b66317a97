package dataplane

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp"              // the app that serves HTTP
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy" // what leads requests to backends
	_ "github.com/caddyserver/caddy/v2/modules/caddytls"               // certificates
	_ "github.com/caddyserver/caddy/v2/modules/caddytls/standardstek"  // keys of TLS sessions
	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
	"github.com/coracle-dev/coracle/pkg/network/gateway/http3"
	"github.com/coracle-dev/coracle/pkg/network/gateway/listening"
	"github.com/coracle-dev/coracle/pkg/network/gateway/policy"
	"github.com/coracle-dev/coracle/pkg/network/gateway/routes"
	"github.com/coracle-dev/coracle/pkg/network/gateway/streams"
)

// serving is what the process serves.
type serving struct {
	files    gateway.Files
	current  atomic.Pointer[state]
	mirrors  mirrors
	repeated memory
	requests *requests
	streams  *streams.Server
	http3    *http3.Server
	fallback gateway.Certificate
	sockets  *listening.Sockets
	// draining is set when another process serves what comes from now on.
	draining atomic.Bool
	answers  atomic.Pointer[challengeAnswers]
	limits   limits

	mu      sync.Mutex         // held while files are applied
	read    []byte             // the file that was applied
	caddy   []byte             // the configuration that Caddy runs
	web     []gateway.Listener // its listeners
	applied gateway.Applied
}

func newServing(files gateway.Files, sockets *listening.Sockets) (*serving, error) {
	made, err := fallback()
	if err != nil {
		return nil, fmt.Errorf("making a certificate for hosts that have none: %w", err)
	}
	s := &serving{
		files: files, fallback: made, limits: limits{headerTimeout, bodyTimeout}, sockets: sockets, streams: streams.New(sockets), http3: http3.New(sockets, drainTime),
		mirrors: mirrors{memory: memory{most: maxMirrors * maxMirrored}}, repeated: memory{most: maxAllRepeated}, requests: newRequests(),
	}
	s.current.Store(&state{table: routes.New(gateway.Config{}, nil, nil), transports: newTransports(gateway.Config{}, nil), policies: policy.New(nil, nil)})
	caddy.RegisterNetwork(socketNetwork, func(_ context.Context, _, host, port string, _ uint, _ net.ListenConfig) (any, error) {
		return s.sockets.Listen("tcp", net.JoinHostPort(host, port))
	})
	caddy.RegisterNetwork(secureNetwork, func(_ context.Context, _, host, port string, _ uint, _ net.ListenConfig) (any, error) {
		l, err := s.sockets.Listen("tcp", net.JoinHostPort(host, port))
		return secureListener{l}, err
	})
	caddy.RegisterModule(router{s})
	caddy.RegisterModule(transport{})
	caddy.RegisterModule(handshake{serving: s})
	caddy.RegisterModule(sharing{s.streams})
	caddy.RegisterModule(challenges{&s.answers})
	return s, nil
}

// serveApply answers the control plane.
func (s *serving) serveApply(w http.ResponseWriter, _ *http.Request) {
	applied, err := s.apply()
	if err != nil {
		logrus.WithError(err).Warn("the gateway goes on with what it had")
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	_ = json.NewEncoder(w).Encode(applied)
}

// apply serves what the files say. After an error of Caddy's its listeners and certificates are what they were; routes and streams are served.
func (s *serving) apply() (gateway.Applied, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var endpoints gateway.Endpoints
	if data, err := os.ReadFile(s.files.Endpoints()); err == nil {
		if err := json.Unmarshal(data, &endpoints); err != nil {
			return gateway.Applied{}, fmt.Errorf("reading %s: %w", s.files.Endpoints(), err)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return gateway.Applied{}, err
	}
	data, err := os.ReadFile(s.files.Config())
	if err != nil {
		return gateway.Applied{}, err
	}
	if bytes.Equal(data, s.read) && len(s.applied.Refused) == 0 {
		now := s.current.Load()
		s.current.Store(&state{now.table.With(endpoints, now.table), now.transports, now.policies, now.logged})
		s.streams.Use(s.current.Load().table)
		return s.applied, nil
	}
	var config gateway.Config
	if err := json.Unmarshal(data, &config); err != nil {
		return gateway.Applied{}, fmt.Errorf("reading %s: %w", s.files.Config(), err)
	}
	s.requests.forget(config)
	s.sockets.TrustProxies(config.Proxies)
	now := s.current.Load()
	s.current.Store(&state{routes.New(config, endpoints, now.table), newTransports(config, now.transports), policy.New(config.Policies, now.policies), config.LogRequests})
	s.answers.Store(answersOf(config.Challenges))
	if err := s.load(config); err != nil {
		return gateway.Applied{}, err
	}
	s.read = data
	return s.applied, nil
}

// load makes Caddy listen, and use the certificates, as a configuration says.
func (s *serving) load(config gateway.Config) error {
	certificates, bad := usable(config.Certificates)
	listeners, refused := s.free(config.Listeners)
	next, err := caddyConfig(listeners, certificates, s.fallback, s.limits)
	if err != nil {
		return err
	}
	if !bytes.Equal(next, s.caddy) {
		if err := caddy.Load(next, true); err != nil && (s.caddy != nil || len(certificates) == 0) {
			config.Certificates = certificates
			s.applyStreams(config, s.web, refused)
			return fmt.Errorf("loading the configuration: %w", err)
		} else if err != nil { // at the start nothing that users have written may keep the gateway from serving
			logrus.WithError(err).Error("the gateway serves without the certificates of Ingresses, because one of them cannot be loaded")
			config.Certificates = nil
			return s.load(config)
		}
		s.caddy, s.web = next, listeners
	}
	config.Certificates = certificates
	sites, err := s.http3Sites(config, listeners)
	if err != nil {
		return err
	}
	s.http3.Apply(sites)
	s.applyStreams(config, listeners, refused)
	s.applied = gateway.Applied{Refused: refused, Certificates: bad}
	return nil
}

// free divides listeners into those of which the port is this process's or free, and the reasons why others cannot be served: a port that
// another program has must not take the others away. At the same addresses a port has one protocol.
func (s *serving) free(all []gateway.Listener) (fine []gateway.Listener, refused map[uint16]string) {
	refused = map[uint16]string{}
	for _, l := range all {
		if l.Protocol != gateway.HTTP && l.Protocol != gateway.HTTPS {
			continue
		}
		if at := slices.IndexFunc(fine, func(other gateway.Listener) bool { return other.Protocol != l.Protocol && meet(other, l) }); at >= 0 {
			refused[l.Port] = fmt.Sprintf("of listeners with %s and %s only the former is served", fine[at].Protocol, l.Protocol)
			continue
		}
		probe, err := s.sockets.Listen("tcp", fmt.Sprintf(":%d", l.Port))
		if err != nil {
			refused[l.Port] = err.Error()
			continue
		}
		probe.Close()
		fine = append(fine, l)
	}
	return fine, refused
}

// meet reports whether listeners have the same port of the same addresses.
func meet(a, b gateway.Listener) bool {
	if a.Port != b.Port || len(a.Addresses) == 0 || len(b.Addresses) == 0 {
		return a.Port == b.Port && len(a.Addresses) == len(b.Addresses)
	}
	return slices.ContainsFunc(a.Addresses, func(address string) bool { return slices.Contains(b.Addresses, address) })
}

// stop ends what serves HTTP. Streams end with the process.
func (s *serving) stop() error {
	s.http3.Close(http3Grace)
	return caddy.Stop()
}
