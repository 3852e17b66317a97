package pki

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/config"
)

func pool(t *testing.T, cfg config.Config, a authority) *x509.CertPool {
	t.Helper()
	cert, err := readCert(a.certFile(cfg.Dirs))
	if err != nil {
		t.Fatal(err)
	}
	p := x509.NewCertPool()
	p.AddCert(cert)
	return p
}

// checkAll verifies every leaf of the table on disk against its authority, with what it is for.
func checkAll(t *testing.T, cfg config.Config) {
	t.Helper()
	for _, l := range allLeaves() {
		both, err := tls.LoadX509KeyPair(l.certFile(cfg.Dirs), l.keyFile(cfg.Dirs))
		if err != nil {
			t.Errorf("%s: %v", l.Name, err)
			continue
		}
		if _, err := both.Leaf.Verify(x509.VerifyOptions{Roots: pool(t, cfg, l.CA), KeyUsages: l.Usage}); err != nil {
			t.Errorf("%s: %v", l.Name, err)
		}
		if both.Leaf.Subject.CommonName != l.commonName(cfg.Node.Name) {
			t.Errorf("%s is for %s", l.Name, both.Leaf.Subject.CommonName)
		}
		if info, err := os.Stat(l.keyFile(cfg.Dirs)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v", l.keyFile(cfg.Dirs), info.Mode(), err)
		}
	}
	for _, dir := range []string{cfg.Dirs.PKI(), cfg.Dirs.NodePKI()} {
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: mode %v, %v", dir, info.Mode(), err)
		}
	}
}

// handshake connects a client to a server, both by the names of their leaves, under a server name.
func handshake(t *testing.T, cfg config.Config, server, client, host string) (user string, err error) {
	t.Helper()
	load := func(name string) (leaf, tls.Certificate) {
		l := leafNamed(name)
		both, err := tls.LoadX509KeyPair(l.certFile(cfg.Dirs), l.keyFile(cfg.Dirs))
		if err != nil {
			t.Fatal(err)
		}
		return l, both
	}
	sl, sc := load(server)
	cl, cc := load(client)
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	// The request header CA of the apiserver is the front proxy's, all other clients are the cluster's.
	srv := tls.Server(a, &tls.Config{Certificates: []tls.Certificate{sc}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool(t, cfg, cl.CA)})
	done := make(chan error, 1)
	go func() { done <- srv.Handshake() }()
	c := tls.Client(b, &tls.Config{Certificates: []tls.Certificate{cc}, RootCAs: pool(t, cfg, sl.CA), ServerName: host})
	if err := c.Handshake(); err != nil {
		return "", err
	}
	if err := <-done; err != nil {
		return "", err
	}
	return srv.ConnectionState().PeerCertificates[0].Subject.String(), nil
}

func TestHandshakes(t *testing.T) {
	cfg := testConfig(t)
	ensureAll(t, cfg)
	checkAll(t, cfg)
	for _, tc := range []struct {
		server, client, host string
		want                 string // the client's subject, "" if the server is refused
	}{
		{"apiserver", "admin", "127.0.0.1", "CN=system:admin,O=system:masters"},
		{"apiserver", "admin", "::1", "CN=system:admin,O=system:masters"},
		{"apiserver", "admin", "localhost", "CN=system:admin,O=system:masters"},
		{"apiserver", "controller-manager", "192.0.2.10", "CN=system:kube-controller-manager"},
		{"apiserver", "scheduler", "kubernetes.default.svc.cluster.local", "CN=system:kube-scheduler"},
		{"apiserver", "coracle", "10.43.0.1", "CN=system:coracle"},
		{"apiserver", "coracle", "fd43::1", "CN=system:coracle"},
		{"apiserver", "kubelet-client", "203.0.113.5", "CN=system:node:boat-1,O=system:nodes"},
		{"apiserver", "node", "api.example.org", "CN=system:coracle:node:boat-1,O=system:coracle:nodes"},
		{"apiserver", "node", "198.51.100.7", "CN=system:coracle:node:boat-1,O=system:coracle:nodes"},
		{"kubelet-server", "apiserver-kubelet-client", "192.0.2.10", "CN=kube-apiserver-kubelet-client"},
		{"kubelet-server", "apiserver-kubelet-client", "2001:db8::10", "CN=kube-apiserver-kubelet-client"},
		{"apiserver", "front-proxy-client", "boat-1", "CN=front-proxy-client"},
		{"apiserver", "admin", "192.0.2.99", ""},
		{"kubelet-server", "admin", "kubernetes", ""},
		{"kubelet-server", "admin", "127.0.0.1", ""},
		{"admin", "kubelet-client", "127.0.0.1", ""}, // a client's certificate serves nobody
	} {
		t.Run(tc.client+" to "+tc.server+" as "+tc.host, func(t *testing.T) {
			got, err := handshake(t, cfg, tc.server, tc.client, tc.host)
			if got != tc.want || (err == nil) != (tc.want != "") {
				t.Errorf("got %q, %v, want %q", got, err, tc.want)
			}
		})
	}
}

// A cluster's owner may bring an authority, of another kind too.
func TestOwnAuthority(t *testing.T) {
	cfg := testConfig(t)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := sign(authorityTemplate(authority{CN: "ours"}, time.Now()), key, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := writeKey(clusterCA.keyFile(cfg.Dirs), key); err != nil {
		t.Fatal(err)
	}
	root := "# our own\n" + string(encodeCert(cert))
	if err := atomicfile.Write(clusterCA.certFile(cfg.Dirs), []byte(root), 0o644); err != nil {
		t.Fatal(err)
	}
	ensureAll(t, cfg)
	checkAll(t, cfg)
	if got, _ := os.ReadFile(filepath.Join(cfg.Dirs.NodePKI(), "ca.crt")); string(got) != root {
		t.Errorf("the node trusts %s", got)
	}
}

func TestServesAs(t *testing.T) {
	cfg := testConfig(t)
	if err := ServesAs(cfg.Dirs, "anything"); err != nil {
		t.Errorf("without a certificate: %v", err)
	}
	ensureAll(t, cfg)
	if err := ServesAs(cfg.Dirs, "api.example.org"); err != nil {
		t.Error(err)
	}
	if err := ServesAs(cfg.Dirs, "edge.example.org"); err == nil {
		t.Error("nothing was said of a foreign name")
	}
}

func TestExpiries(t *testing.T) {
	cfg := testConfig(t)
	if got := Expiries(cfg.Dirs); len(got) != 0 {
		t.Errorf("on an empty machine: %v", got)
	}
	ensureAll(t, cfg)
	if err := os.WriteFile(filepath.Join(cfg.Dirs.PKI(), "admin.crt"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := Expiries(cfg.Dirs)
	if len(got) != len(authorities)+len(allLeaves()) {
		t.Fatalf("%d entries", len(got))
	}
	for _, e := range got {
		if e.Name == "admin" {
			if e.Error == "" {
				t.Error("a damaged certificate is not told")
			}
			continue
		}
		if e.Error != "" || e.NotAfter.Before(time.Now()) || e.Issuer == "" {
			t.Errorf("%+v", e)
		}
	}
}
