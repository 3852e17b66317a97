package scheduling

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/extensions/cluster"
)

// address is that of the extender's Service, in the scheduler's configuration.
const address = "10.43.0.50"

// TestMain is the test, or the scheduler in the test's image.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "scheduler" {
		os.Exit(scheduler(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// TestScheduling shows on which nodes pods land, in a cluster of two nodes in two zones.
func TestScheduling(t *testing.T) {
	config := t.TempDir()
	if err := os.CopyFS(config, os.DirFS("coracle")); err != nil {
		t.Fatal(err)
	}
	own := certificate(t, filepath.Join(config, "extender-ca.crt"))
	c := cluster.Start(t, "scheduling", cluster.Options{Nodes: 2, Config: config, Images: []string{"busybox"},
		Archives: []string{cluster.Image(t, "scheduling.test/scheduler:1", "scheduler")}})
	east, west := c.Nodes[0].Name, c.Nodes[1].Name
	serve(t, c, own, Extender{Licensed: map[string]bool{west: true}})
	for _, heading := range []string{
		"Two further profiles", "An extender", "Gates", "Topology spread, and budgets of disruption", "Preemption", "A plug-in of your own",
	} {
		c.Run(t, heading, func(t *testing.T, s cluster.Space) {
			s.Play(t, heading, "EAST="+east, "WEST="+west)
		})
	}
}

// certificate makes the extender's certificate, which is its own authority, and writes it to a file.
func certificate(t *testing.T, file string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.ParseIP(address)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// serve serves the extender in this process, behind a Service with the address that the scheduler knows.
func serve(t *testing.T, c *cluster.Cluster, own tls.Certificate, extender Extender) {
	t.Helper()
	e := c.Expose(t)
	listener, err := tls.Listen("tcp", net.JoinHostPort(e.Host, strconv.Itoa(e.Port)), &tls.Config{Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /filter", extender)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	c.Space(t).Play(t, "The extender's Service", "HOST="+e.Host, "PORT="+strconv.Itoa(e.Port))
}
