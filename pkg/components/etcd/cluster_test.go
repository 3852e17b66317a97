package etcd

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/coracle-dev/coracle/pkg/join"
)

// authority is one CA for all tests of the process.
var authority = sync.OnceValue(func() *x509.Certificate {
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "etcd-ca"}, IsCA: true,
		BasicConstraintsValid: true, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &authorityKey().PublicKey, authorityKey())
	if err != nil {
		panic(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	return cert
})

var authorityKey = sync.OnceValue(func() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return key
})

// certificate makes a peer's files.
func certificate(t *testing.T, ip string) TLS {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "etcd-peer"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.ParseIP(ip)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	cert, err := x509.CreateCertificate(rand.Reader, template, authority(), &key.PublicKey, authorityKey())
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := TLS{CA: filepath.Join(dir, "ca.crt"), Cert: filepath.Join(dir, "peer.crt"), Key: filepath.Join(dir, "peer.key")}
	for file, block := range map[string]*pem.Block{
		files.CA: {Type: "CERTIFICATE", Bytes: authority().Raw}, files.Cert: {Type: "CERTIFICATE", Bytes: cert},
		files.Key: {Type: "EC PRIVATE KEY", Bytes: der},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// servers stands for the other servers' APIs: it asks the members that run.
type servers struct {
	t     *testing.T
	mu    sync.Mutex
	asked []*Etcd // in this order
}

func (s *servers) Known() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asked) > 0
}

// any calls do with a client of the first member that answers.
func (s *servers) any(ctx context.Context, do func(context.Context, *Etcd, *clientv3.Client) error) error {
	s.mu.Lock()
	asked := s.asked
	s.mu.Unlock()
	err := errors.New("there is no server")
	for _, e := range asked {
		c, dialErr := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + e.Socket}, DialTimeout: time.Second, Logger: zap.NewNop()})
		if dialErr != nil {
			err = dialErr
			continue
		}
		try, cancel := context.WithTimeout(ctx, 2*time.Second)
		err = do(try, e, c)
		cancel()
		c.Close()
		if err == nil {
			return nil
		}
	}
	return err
}

func (s *servers) Members(ctx context.Context) (members []join.Member, err error) {
	err = s.any(ctx, func(ctx context.Context, _ *Etcd, c *clientv3.Client) error {
		list, err := c.MemberList(ctx)
		if err != nil {
			return err
		}
		members = nil
		for _, m := range list.Members {
			members = append(members, join.Member{ID: fmt.Sprintf("%x", m.ID), Name: m.Name, PeerURLs: m.PeerURLs, Learner: m.IsLearner})
		}
		return nil
	})
	return members, err
}

func (s *servers) AddMember(ctx context.Context, m join.AddMember) (added join.AddedMember, err error) {
	err = s.any(ctx, func(ctx context.Context, e *Etcd, c *clientv3.Client) error {
		if err := e.OpenPeers(ctx); err != nil {
			return err
		}
		got, err := c.MemberAddAsLearner(ctx, []string{m.PeerURL})
		if err != nil {
			return err
		}
		var all []string
		for _, other := range got.Members {
			name := other.Name
			if other.ID == got.Member.ID {
				name = m.Name
			}
			all = append(all, name+"="+other.PeerURLs[0])
		}
		added = join.AddedMember{ID: fmt.Sprintf("%x", got.Member.ID), InitialCluster: strings.Join(all, ",")}
		return nil
	})
	return added, err
}

// member makes the nth member, on its own loopback address.
func member(t *testing.T, n int, others Others) *Etcd {
	t.Helper()
	e := newEtcd(t)
	ip := fmt.Sprintf("127.0.0.%d", 10+n)
	e.Name, e.TLS, e.Others = fmt.Sprint("n", n), certificate(t, ip), others
	e.Peer = netip.AddrPortFrom(netip.MustParseAddr(ip), 2380)
	return e
}

func mustRun(t *testing.T, e *Etcd) (stop func()) {
	t.Helper()
	began := time.Now()
	err, stop := run(t, e)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s is ready after %s", e.Name, time.Since(began).Round(time.Millisecond))
	return stop
}

func TestCluster(t *testing.T) {
	known := &servers{t: t}
	n1 := member(t, 1, nil)
	stop1 := mustRun(t, n1)
	defer stop1()
	known.asked = []*Etcd{n1}
	n2, n3 := member(t, 2, known), member(t, 3, known)
	stop2 := mustRun(t, n2)
	stop3 := mustRun(t, n3)
	defer stop3()
	put(t, n3, "a", "1")
	stop2()
	put(t, n3, "b", "2")
	if got := get(t, n1, "b"); got != "2" {
		t.Errorf("b is %q", got)
	}
	stop2 = mustRun(t, n2)
	defer stop2()
	if got := get(t, n2, "b"); got != "2" {
		t.Errorf("b is %q", got)
	}
}

func put(t *testing.T, e *Etcd, key, value string) {
	t.Helper()
	c := client(t, e)
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	began := time.Now()
	if _, err := c.Put(ctx, key, value); err != nil {
		t.Fatalf("writing to %s: %v", e.Name, err)
	}
	t.Logf("wrote to %s in %s", e.Name, time.Since(began).Round(time.Millisecond))
}

func get(t *testing.T, e *Etcd, key string) string {
	t.Helper()
	c := client(t, e)
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	got, err := c.Get(ctx, key)
	if err != nil {
		t.Fatalf("reading from %s: %v", e.Name, err)
	}
	if len(got.Kvs) == 0 {
		return ""
	}
	return string(got.Kvs[0].Value)
}
