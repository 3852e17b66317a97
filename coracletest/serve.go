package coracletest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	admission "k8s.io/api/admissionregistration/v1"
)

// Endpoint is a server in the test process that the cluster reaches as a Service: a webhook, an aggregated API, or what pods are to talk to.
type Endpoint struct {
	// Namespace and Name are those of the Service, whose port is 443.
	Namespace, Name string
	// Host and Port are where the server listens in the test process.
	Host string
	Port int
	// CertDir has the certificate as tls.crt and tls.key, which is where controller-runtime's webhook server looks for it.
	CertDir string
	// CABundle is the certificate of the authority in PEM.
	CABundle []byte

	certificate tls.Certificate
	listener    net.Listener
}

// endpointsNamespace is the namespace of the Services of endpoints.
const endpointsNamespace = "coracletest"

// Expose makes a Service and a certificate for a server that the caller starts on Host and Port, such as controller-runtime's webhook server.
func (c *Cluster) Expose(t TB) *Endpoint {
	t.Helper()
	e := c.listen(t)
	_ = e.listener.Close()
	return e
}

// Serve serves a handler to the cluster with TLS until the end of the test. Client certificates are asked for and not verified: an aggregated API
// has to verify them by the ConfigMap kube-system/extension-apiserver-authentication.
func (c *Cluster) Serve(t TB, h http.Handler) *Endpoint {
	t.Helper()
	e := c.listen(t)
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(&tail{}, "", 0),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{e.certificate}, ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12},
	}
	go func() {
		if err := server.ServeTLS(e.listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			t.Logf("coracletest: serving %s: %v", e.Name, err)
		}
	}()
	t.Cleanup(func() { _ = server.Close() })
	return e
}

// URL is the server's address for clients in the cluster.
func (e *Endpoint) URL() string { return "https://" + e.Name + "." + e.Namespace + ".svc" }

// ClientConfig is what a webhook's configuration says about the server. Its fields are the same for conversion webhooks of custom resources.
func (e *Endpoint) ClientConfig(path string) admission.WebhookClientConfig {
	return admission.WebhookClientConfig{CABundle: e.CABundle, Service: &admission.ServiceReference{Namespace: e.Namespace, Name: e.Name, Path: &path}}
}

// ServeAPI registers the server as the one of an API group's version until the end of the test, and waits until the cluster reaches it.
func (c *Cluster) ServeAPI(t TB, e *Endpoint, group, version string) {
	t.Helper()
	const all = "/apis/apiregistration.k8s.io/v1/apiservices"
	name := version + "." + group
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := c.call(ctx, http.MethodPost, all, object{"metadata": object{"name": name}, "spec": object{
		"group": group, "version": version, "groupPriorityMinimum": 1000, "versionPriority": 15, "caBundle": e.CABundle,
		"service": object{"namespace": e.Namespace, "name": e.Name},
	}})
	if err == nil {
		t.Cleanup(func() { _ = c.call(context.Background(), http.MethodDelete, all+"/"+name, nil) }) // with the cluster, at the latest
		err = c.until(ctx, all+"/"+name, func(o object) bool { return hasCondition(o, "Available") })
	}
	if err == nil { // the API server refuses requests until it has heard of its own condition
		err = c.until(ctx, "/apis/"+group+"/"+version, nil)
	}
	if err != nil {
		t.Fatalf("coracletest: registering the API %s: %v", name, err)
	}
}

// listen listens where the cluster reaches this process, and makes the Service.
func (c *Cluster) listen(t TB) *Endpoint {
	t.Helper()
	e := &Endpoint{Namespace: endpointsNamespace, Name: "test-" + strings.ToLower(rand.Text()[:8]), Host: c.run.access.Machine, CertDir: t.TempDir()}
	var err error
	if e.listener, err = net.Listen("tcp", net.JoinHostPort(e.Host, "0")); err != nil {
		t.Fatalf("coracletest: listening where nodes reach this process: %v; servers in the test process need Linux", err)
	}
	t.Cleanup(func() { _ = e.listener.Close() })
	e.Port = e.listener.Addr().(*net.TCPAddr).Port
	if err := errors.Join(e.certify(), c.makeService(context.Background(), e)); err != nil {
		t.Fatalf("coracletest: making a Service for the server at %s: %v", e.listener.Addr(), err)
	}
	return e
}

// makeService makes the Service and its endpoints.
func (c *Cluster) makeService(ctx context.Context, e *Endpoint) error {
	err := c.call(ctx, http.MethodPost, "/api/v1/namespaces", object{"metadata": object{"name": e.Namespace}})
	var status *statusError
	if err != nil && (!errors.As(err, &status) || status.code != http.StatusConflict) {
		return err
	}
	ports := []object{{"name": "https", "protocol": "TCP", "port": 443, "targetPort": e.Port}}
	err = c.call(ctx, http.MethodPost, "/api/v1/namespaces/"+e.Namespace+"/services", object{"metadata": object{"name": e.Name}, "spec": object{"ports": ports}})
	if err != nil {
		return err
	}
	return c.call(ctx, http.MethodPost, "/apis/discovery.k8s.io/v1/namespaces/"+e.Namespace+"/endpointslices", object{
		"metadata":    object{"name": e.Name, "labels": object{"kubernetes.io/service-name": e.Name}},
		"addressType": "IPv4", "ports": []object{{"name": "https", "protocol": "TCP", "port": e.Port}},
		"endpoints": []object{{"addresses": []string{e.Host}, "conditions": object{"ready": true}}},
	})
}

// certify makes the server's certificate, with an authority of its own whose key is not kept.
func (e *Endpoint) certify() error {
	authority, key, err := certificate(&x509.Certificate{Subject: pkix.Name{CommonName: "coracletest"}, IsCA: true, KeyUsage: x509.KeyUsageCertSign}, nil, nil)
	if err != nil {
		return err
	}
	name := e.Name + "." + e.Namespace
	leaf, leafKey, err := certificate(&x509.Certificate{
		Subject: pkix.Name{CommonName: name + ".svc"}, DNSNames: []string{name, name + ".svc", name + ".svc.cluster.local"}, IPAddresses: []net.IP{net.ParseIP(e.Host)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, authority, key)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(leafKey)
	if err != nil {
		return err
	}
	e.CABundle = encode("CERTIFICATE", authority.Raw)
	public, private := encode("CERTIFICATE", leaf.Raw), encode("PRIVATE KEY", der)
	if e.certificate, err = tls.X509KeyPair(public, private); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(e.CertDir, "tls.crt"), public, 0o600), os.WriteFile(filepath.Join(e.CertDir, "tls.key"), private, 0o600))
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// certificate makes a certificate for a day, signed by an authority, or by itself if there is none.
func certificate(template, by *x509.Certificate, with *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, err
	}
	template.NotBefore, template.NotAfter, template.BasicConstraintsValid = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour), true
	if by == nil {
		by, with = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by, &key.PublicKey, with)
	if err != nil {
		return nil, nil, fmt.Errorf("making a certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	return cert, key, err
}
