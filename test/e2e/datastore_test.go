package e2e

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/modules"
	"github.com/coracle-dev/coracle/test/slots"
)

// TestDatastore keeps a cluster's data in an external etcd 3.6, with TLS in both directions and a prefix. The second
// server has no flags for it, and continues when the first one dies.
func TestDatastore(t *testing.T) {
	slots.Take(t)
	hosts.Bin(t)
	exe := modules.Build(t, "etcd36")
	wire := hosts.NewWire(t, netip.MustParsePrefix("172.30.0.0/24"))
	store := hosts.New(t, wire, "store", hosts.Options{})
	first := hosts.New(t, wire, "first", hosts.Options{})
	second := hosts.New(t, wire, "second", hosts.Options{})
	endpoint := "https://" + store.IP.String() + ":2379"
	datastore := runEtcd(t, store, exe, endpoint, first)
	token := "--token=the-same-everywhere"

	s := first.Start(append(datastore, token)...)
	await(t, "coracle to say what it waits for", func(context.Context) bool {
		return strings.Contains(s.Log(), "the datastore at "+endpoint+" does not answer yet")
	})
	startEtcd(t, store)
	waitReady(t, first)
	if out, err := first.TryCoracle("etcd", "members"); err == nil || !strings.Contains(err.Error(), "an etcd that coracle does not run, at "+endpoint) {
		t.Errorf("coracle etcd members says %s %v", out, err)
	}
	second.Start(token, "--server=https://"+first.IP.String()+":6443")
	waitReady(t, second)
	made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}
	if _, err := second.Client().CoreV1().ConfigMaps("default").Create(t.Context(), made, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if !logged(t, store, "/one/configmaps/default/kept") || logged(t, store, "/registry/") {
		t.Error("the data is not below the prefix")
	}
	createTreasure(second)
	t.Log(second.Coracle("secrets-encrypt", "rotate-keys"))
	if out := first.Coracle("secrets-encrypt", "status"); !strings.Contains(out, "Encryption Status: Enabled\nCurrent Rotation Stage: reencrypt_finished\nServer Encryption Hashes: All hashes match") ||
		!strings.Contains(out, "*") || !strings.Contains(out, "key2") {
		t.Error(out)
	}
	checkTreasure(t, first)
	began := time.Now()
	first.Kill()
	await(t, "a leader after the first", func(ctx context.Context) bool {
		lease, err := second.Client().CoordinationV1().Leases("kube-system").Get(ctx, "coracle-control-plane", metav1.GetOptions{})
		return err == nil && lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity == "second"
	})
	t.Logf("the second server leads %.1f s after the first one's death", time.Since(began).Seconds())
	if _, err := second.Client().CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

func await(t *testing.T, what string, done func(context.Context) bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !done(t.Context()); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("there is never " + what)
		}
	}
}

// runEtcd installs etcd and its certificates on a host, and a client's on another. It returns the flags for the client.
func runEtcd(t *testing.T, store *hosts.Host, exe, endpoint string, client *hosts.Host) []string {
	t.Helper()
	program, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range []*hosts.Host{store, client} {
		if err := os.MkdirAll(h.Path("/etcd"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	put(t, store, "/etcd/etcd", program, 0o755)
	ca, sign := authority(t)
	for _, h := range []*hosts.Host{store, client} {
		cert, key := sign(h.IP)
		put(t, h, "/etcd/ca.crt", ca, 0o644)
		put(t, h, "/etcd/tls.crt", cert, 0o644)
		put(t, h, "/etcd/tls.key", key, 0o600)
	}
	put(t, store, "/etcd/args", []byte("--data-dir=/etcd/data --listen-client-urls="+endpoint+" --advertise-client-urls="+endpoint+
		" --cert-file=/etcd/tls.crt --key-file=/etcd/tls.key --trusted-ca-file=/etcd/ca.crt --client-cert-auth"), 0o644)
	return []string{"--datastore-endpoint=" + endpoint, "--datastore-prefix=/one", "--datastore-cafile=/etcd/ca.crt",
		"--datastore-certfile=/etcd/tls.crt", "--datastore-keyfile=/etcd/tls.key"}
}

func startEtcd(t *testing.T, store *hosts.Host) {
	t.Helper()
	cmd := store.Command("sh", "-c", "exec /etcd/etcd $(cat /etcd/args) > /etcd/log 2>&1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			log, _ := os.ReadFile(store.Path("/etcd/log"))
			t.Logf("etcd said:\n%s", log)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

// logged reports whether etcd's log contains a text.
func logged(t *testing.T, store *hosts.Host, text string) bool {
	t.Helper()
	files, err := filepath.Glob(store.Path("/etcd/data/member/wal/*.wal"))
	if err != nil || len(files) == 0 {
		t.Fatal("etcd has no log", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(data, []byte(text)) {
			return true
		}
	}
	return false
}

func put(t *testing.T, h *hosts.Host, path string, data []byte, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(h.Path(path), data, mode); err != nil {
		t.Fatal(err)
	}
}

// authority makes a CA, and certificates for servers and clients.
func authority(t *testing.T) (ca []byte, sign func(netip.Addr) (cert, key []byte)) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "their-ca"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &caKey.PublicKey, caKey)
	must(err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), func(ip netip.Addr) (cert, key []byte) {
		leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		must(err)
		leaf := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: ip.String()},
			NotBefore: template.NotBefore, NotAfter: template.NotAfter, IPAddresses: []net.IP{ip.AsSlice()}, KeyUsage: x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
		der, err := x509.CreateCertificate(rand.Reader, leaf, template, &leafKey.PublicKey, caKey)
		must(err)
		keyDER, err := x509.MarshalECPrivateKey(leafKey)
		must(err)
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
	}
}
