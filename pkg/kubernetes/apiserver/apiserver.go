// Package apiserver runs kube-apiserver, with its aggregation layer and the API of custom resources.
package apiserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	serveroptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig/controller"
	"k8s.io/client-go/rest"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"

	"github.com/coracle-dev/coracle/pkg/core/addon"
	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/heldsocket"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/state"
)

// APIServer is the component.
type APIServer struct {
	Store    config.Datastore // also where the data is in our own etcd
	API      config.API
	Network  config.Network
	Security config.Security
	Issuer   string // of service account tokens
	Files    Files
	AuditLog string // file, used if there is an audit policy
	// Encryption is coracle's own EncryptionConfiguration, used if API has none. It exists, and may change.
	Encryption string
	Extension  Extension         // paths of coracle; the zero value has none
	Egress     Egress            // how nodes and pods are reached
	Accounts   *AccountKeys      // nil reads the keys of service accounts once
	Socket     *heldsocket.Lent  // of the front, nil for one of its own
	Alone      func() bool       // reports whether the cluster has never had another server
	Guard      Guard             // checks the requests of nodes; may be nil
	Groups     []Group           // API groups of coracle
	Admission  []addon.Admission // plugins of coracle, which are on by default
	Gates      string            // the pass-through feature gates of all parts of the process, "feature-gates=...", or ""
	InMemory   bool              // the data directory, with the audit log, is in memory
	Args       []string          // pass-through flags, "name=value"
}

// Files are the paths of keys and certificates, and of configuration files that Run writes.
type Files struct {
	ClientCA          string
	Cert, Key         string // serving
	ServiceAccountKey string
	ServiceAccountPub string
	KubeletCA         string
	KubeletClientCert string
	KubeletClientKey  string
	ProxyClientCA     string // front proxy
	ProxyClientCert   string
	ProxyClientKey    string
	Authentication    string // AuthenticationConfiguration, generated
	AuditPolicy       string // Policy, generated
	Admission         string // AdmissionConfiguration, generated
}

// authentication allows anonymous requests to the health endpoints only.
const authentication = `apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
anonymous:
  enabled: true
  conditions:
  - path: /livez
  - path: /readyz
  - path: /healthz
`

// streamsTimeout is how long a stop waits for connections after all requests but watches, logs that are followed, and the like have been answered. Those
// do not end by themselves, and a connection whose handshake ends after the stop has begun is not told to.
const streamsTimeout = 2 * time.Second

// Run serves the API until ctx is done. It is ready when /readyz and /healthz are.
func (a APIServer) Run(ctx context.Context, ready func()) error {
	ctx = kube.WithComponent(ctx, "kube-apiserver")
	if err := atomicfile.Write(a.Files.Authentication, []byte(authentication), 0o600); err != nil {
		return fmt.Errorf("writing the authentication configuration: %w", err)
	}
	if err := a.writeAuditPolicy(); err != nil {
		return fmt.Errorf("writing the audit policy: %w", err)
	}
	if err := a.writeAdmission(); err != nil {
		return err
	}
	controller.EncryptionConfigFileChangePollDuration = time.Second // upstream's minute would be a minute for each step of a change of keys
	completed, err := a.options(ctx)
	if err != nil {
		return err
	}
	cfg, err := a.Egress.newConfig(completed, a.Groups, a.Guard)
	if err != nil {
		return a.explain(err)
	}
	a.Extension.prepare(cfg)
	server, err := createServer(cfg, a.Groups, a.Files.ClientCA, a.Alone)
	if err != nil {
		return err
	}
	if err := runGuard(a.Guard, server.GenericAPIServer); err != nil {
		return err
	}
	a.Extension.mount(server.GenericAPIServer)
	server.GenericAPIServer.ShutdownTimeout = streamsTimeout
	prepared, err := server.PrepareRun()
	if err != nil {
		return err
	}
	forgetDefinitions(cfg)
	if err := setProbe(ctx, server.GenericAPIServer.LoopbackClientConfig); err != nil {
		return err
	}
	go func() {
		if awaitHealthy(ctx, server.GenericAPIServer.Handler) == nil {
			ready()
		}
	}()
	return prepared.Run(ctx)
}

// explain adds the name of the file to an error of upstream that lacks it.
func (a APIServer) explain(err error) error {
	if a.API.EncryptionConfig != "" && strings.Contains(err.Error(), "parsing file") {
		return fmt.Errorf("reading the encryption configuration %s: %w", a.API.EncryptionConfig, err)
	}
	return err
}

// options returns the completed and validated options.
func (a APIServer) options(ctx context.Context) (options.CompletedOptions, error) {
	none := options.CompletedOptions{}
	opts := options.NewServerRunOptions()
	addAdmission(opts.Admission.GenericAdmission, a.Admission)
	flags := a.flags()
	if err := flags.Parse("kube-apiserver", opts.Flags()); err != nil {
		return none, err
	}
	lifecycle.RunsWith(ctx, state.Settings{Flags: flags})
	kube.RaiseVerbosity(int(opts.Logs.Verbosity))
	registry := opts.GenericServerRunOptions.ComponentGlobalsRegistry
	if err := registry.Set(); err != nil {
		return none, fmt.Errorf("setting feature gates: %w", err)
	}
	registry.AddMetrics()
	if gates, ok := registry.FeatureGateFor(basecompatibility.DefaultKubeComponent).(featuregate.MutableFeatureGate); ok {
		gates.AddMetrics()
	}
	a.listen(opts.SecureServing.SecureServingOptions)
	completed, err := opts.Complete(ctx)
	if err != nil {
		return none, err
	}
	if err := errors.Join(completed.Validate()...); err != nil {
		return none, err
	}
	return completed, a.Accounts.install(ctx, &completed)
}

// listen uses the socket that the front holds, if the flags ask for no other.
func (a APIServer) listen(serving *serveroptions.SecureServingOptions) {
	address, _ := netip.AddrFromSlice(serving.BindAddress)
	l, err := a.Socket.Listen(netip.AddrPortFrom(address.Unmap(), uint16(serving.BindPort)))
	if err != nil {
		logrus.WithField("component", "kube-apiserver").WithError(err).Warn("using the socket of the front")
	} else if l != nil {
		serving.Listener = l
	}
}

// setProbe sets the probe of whether the server lives: a request over its port that needs nothing but the server itself.
func setProbe(ctx context.Context, loopback *rest.Config) error {
	client, err := rest.HTTPClientFor(loopback)
	if err != nil {
		return fmt.Errorf("making a client of its own port: %w", err)
	}
	lifecycle.ProbeWith(ctx, func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, loopback.Host+"/livez/ping", nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		return response.Body.Close()
	})
	return nil
}

// awaitHealthy waits until the health endpoints succeed. It calls the handler without a connection.
func awaitHealthy(ctx context.Context, handler http.Handler) error {
	for _, path := range []string{"/readyz", "/healthz"} {
		err := lifecycle.Until(ctx, path, func(ctx context.Context) error {
			answer, err := transport{handler}.RoundTrip(httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil))
			if err == nil && answer.StatusCode != http.StatusOK {
				text, _ := io.ReadAll(answer.Body) // it is in memory
				err = fmt.Errorf("%d %s", answer.StatusCode, text)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
