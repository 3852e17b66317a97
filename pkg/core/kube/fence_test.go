package kube

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// slowAPI answers like an API server, and requests for a Node "slow" only when their connection is closed.
type slowAPI struct {
	*httptest.Server
	requests atomic.Int32
	ended    chan struct{}
}

func newSlowAPI(t *testing.T) *slowAPI {
	api := &slowAPI{ended: make(chan struct{}, 1)}
	api.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		api.requests.Add(1)
		if filepath.Base(r.URL.Path) == "slow" {
			<-r.Context().Done()
			api.ended <- struct{}{}
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"Node","apiVersion":"v1","metadata":{"name":"a"}}`))
	}))
	api.EnableHTTP2 = true
	api.StartTLS()
	t.Cleanup(api.Close)
	return api
}

func (api *slowAPI) config(t *testing.T) *rest.Config {
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return &rest.Config{Host: api.URL, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAFile: file}}
}

func remove(client kubernetes.Interface, name string) error {
	return client.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{})
}

func TestFence(t *testing.T) {
	api := newSlowAPI(t)
	ctx, lose := context.WithCancel(t.Context())
	config := api.config(t)
	Fence(ctx, config)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := remove(client, "a"); err != nil || api.requests.Load() != 1 {
		t.Errorf("while it leads: %v after %d requests", err, api.requests.Load())
	}
	lose()
	if err := remove(client, "a"); !errors.Is(err, errFenced) || api.requests.Load() != 1 {
		t.Errorf("after the loss: %v after %d requests", err, api.requests.Load())
	}
}

// TestFencesAreApart: the end of one component closes the connections of no other.
func TestFencesAreApart(t *testing.T) {
	api := newSlowAPI(t)
	ctx, lose := context.WithCancel(t.Context())
	kept, lost := api.config(t), api.config(t)
	if err := errors.Join(FenceConnections(t.Context(), kept), FenceConnections(ctx, lost)); err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(kept)
	if err != nil {
		t.Fatal(err)
	}
	lose()
	if err := remove(client, "a"); err != nil {
		t.Errorf("after another's loss: %v", err)
	}
}

func TestFenceConnections(t *testing.T) {
	for name, derive := range map[string]func(*rest.Config) *rest.Config{
		"itself":                 func(c *rest.Config) *rest.Config { return c },
		"with another agent":     func(c *rest.Config) *rest.Config { return rest.AddUserAgent(c, "scheduler") },
		"of a client builder":    rest.AnonymousClientConfig,
		"with a token, built so": func(c *rest.Config) *rest.Config { c = rest.AnonymousClientConfig(c); c.BearerToken = "t"; return c },
	} {
		t.Run(name, func(t *testing.T) {
			api := newSlowAPI(t)
			for range 2 { // terms
				ctx, lose := context.WithCancel(t.Context())
				defer lose()
				config := api.config(t)
				if err := FenceConnections(ctx, config); err != nil {
					t.Fatal(err)
				}
				client, err := kubernetes.NewForConfig(derive(config))
				if err != nil {
					t.Fatal(err)
				}
				api.requests.Store(0)
				if err := remove(client, "a"); err != nil || api.requests.Load() != 1 {
					t.Errorf("while it leads: %v after %d requests", err, api.requests.Load())
				}
				slow := make(chan error, 1)
				go func() { slow <- remove(client, "slow") }()
				for api.requests.Load() < 2 {
					time.Sleep(time.Millisecond)
				}
				lose()
				<-api.ended // the server ends it too
				if err := <-slow; err == nil {
					t.Error("a request on its way has succeeded")
				}
				if err := remove(client, "a"); !errors.Is(err, errFenced) || api.requests.Load() != 2 {
					t.Errorf("after the loss: %v after %d requests", err, api.requests.Load())
				}
			}
		})
	}
}

// TestFencedRenewal: a component's connections are closed when its certificate is renewed, so that none goes on with one that has ended.
func TestFencedRenewal(t *testing.T) {
	before := transport.CertCallbackRefreshDuration
	transport.CertCallbackRefreshDuration = 10 * time.Millisecond
	t.Cleanup(func() { transport.CertCallbackRefreshDuration = before })
	shown := make(chan string, 1)
	api := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case shown <- r.TLS.PeerCertificates[0].SerialNumber.String():
		default:
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"Node","apiVersion":"v1","metadata":{"name":"a"}}`))
	}))
	api.EnableHTTP2, api.TLS = true, &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	api.StartTLS()
	t.Cleanup(api.Close)
	config := (&slowAPI{Server: api}).config(t)
	config.CertFile, config.KeyFile = filepath.Join(t.TempDir(), "client.crt"), filepath.Join(t.TempDir(), "client.key")
	renew := func(serial int64) {
		t.Helper()
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour)}
		cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.WriteFile(config.KeyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600),
			os.WriteFile(config.CertFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	renew(1)
	if err := FenceConnections(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := remove(client, "a"); err != nil {
		t.Fatal(err)
	}
	if serial := <-shown; serial != "1" {
		t.Fatalf("it shows the certificate %s", serial)
	}
	renew(2)
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		err := remove(client, "a") // one on its way is closed too
		if err == nil && <-shown == "2" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("it goes on with the former certificate: %v", err)
		}
	}
}
