package apiserver

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	genericfeatures "k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/keyutil"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

// refusing is a guard that refuses all requests.
type refusing struct{}

func (refusing) Run(context.Context, kubernetes.Interface) {}

func (refusing) Handler(http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
}

func (refusing) Authenticator(next authenticator.Request) authenticator.Request { return next }

// listen returns a listener that is closed after the test.
func listen(t *testing.T, network, address string) net.Listener {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// minimal returns options with which the server's configuration can be made, but no server started.
func minimal(t *testing.T) options.CompletedOptions {
	t.Helper()
	dir := t.TempDir()
	socket := listen(t, "unix", filepath.Join(dir, "etcd.sock"))
	etcd := grpc.NewServer() // nothing is asked for
	go func() { _ = etcd.Serve(socket) }()
	t.Cleanup(etcd.Stop)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	text, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "sa.key")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	opts := options.NewServerRunOptions()
	flags := opts.Flags()
	for name, value := range map[string]string{
		"etcd-servers": "unix://" + socket.Addr().String(), "cert-dir": dir, "advertise-address": "192.0.2.1", "authorization-mode": "RBAC",
		"service-account-issuer": "https://api.test", "service-account-signing-key-file": file, "service-account-key-file": file,
	} {
		for _, group := range flags.FlagSets {
			if group.Lookup(name) == nil {
				continue
			}
			if err := group.Set(name, value); err != nil {
				t.Fatal(err)
			}
		}
	}
	opts.SecureServing.Listener = listen(t, "tcp", "127.0.0.1:0")
	completed, err := opts.Complete(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return completed
}

// TestGuardWithFeatures: upstream replaces the handlers of the aggregator if these features are on.
func TestGuardWithFeatures(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, genericfeatures.StorageVersionAPI, true)
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, genericfeatures.APIServerIdentity, true)
	cfg, err := Egress{}.newConfig(minimal(t), nil, refusing{})
	if err != nil {
		t.Fatal(err)
	}
	outermost := cfg.Aggregator.GenericConfig.Complete()
	answer := httptest.NewRecorder()
	outermost.BuildHandlerChainFunc(http.NotFoundHandler(), outermost.Config).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/api/v1/nodes", nil))
	if answer.Code != http.StatusTeapot {
		t.Errorf("the guard was not asked: %d", answer.Code)
	}
	if _, ok := outermost.Authentication.Authenticator.(guarded); !ok {
		t.Errorf("guesses are not limited: %T", outermost.Authentication.Authenticator)
	}
}
