package member

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
)

// signer is a certificate authority.
type signer struct {
	*x509.Certificate
	key   *ecdsa.PrivateKey
	cross []byte // for clients of another one
}

// authority is the CA of all tests of the process.
var authority = sync.OnceValue(func() signer { return newSigner(nil) })

// newSigner makes an authority, for which a former one vouches.
func newSigner(former *signer) signer {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "etcd-ca-" + rand.Text()}, IsCA: true,
		BasicConstraintsValid: true, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign}
	sign := func(parent *x509.Certificate, with *ecdsa.PrivateKey) *x509.Certificate {
		der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, with)
		if err != nil {
			panic(err)
		}
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			panic(err)
		}
		return cert
	}
	s := signer{Certificate: sign(template, key), key: key}
	if former != nil {
		s.cross = sign(former.Certificate, former.key).Raw
	}
	return s
}

// certificate makes a peer's files.
func certificate(t *testing.T, ip string) TLS {
	t.Helper()
	return authority().certificate(t, ip)
}

func (s signer) certificate(t *testing.T, ip string) TLS {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "etcd-peer"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.ParseIP(ip)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	cert, err := x509.CreateCertificate(rand.Reader, template, s.Certificate, &key.PublicKey, s.key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := TLS{CA: filepath.Join(dir, "ca.crt"), Cert: filepath.Join(dir, "peer.crt"), Key: filepath.Join(dir, "peer.key")}
	chain := encode("CERTIFICATE", cert)
	if s.cross != nil {
		chain = append(chain, encode("CERTIFICATE", s.cross)...)
	}
	for file, data := range map[string][]byte{files.CA: encode("CERTIFICATE", s.Raw), files.Cert: chain, files.Key: encode("EC PRIVATE KEY", der)} {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

func encode(kind string, data []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data})
}

// TestFormerAuthority: when another authority has taken the place of the one of the start, certificates of the former one are of no use for peers, also on
// connections that are open.
func TestFormerAuthority(t *testing.T) {
	e := newEtcd(t)
	defer mustRun(t, e)()
	if err := e.OpenPeers(t.Context()); err != nil {
		t.Fatal(err)
	}
	connect := func(files TLS) *tls.Conn {
		t.Helper()
		cert, err := tls.LoadX509KeyPair(files.Cert, files.Key)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := tls.Dial("tcp", e.Peer.String(), &tls.Config{Certificates: []tls.Certificate{cert}, InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	closed := func(conn *tls.Conn, within time.Duration) bool {
		t.Helper()
		if err := conn.SetReadDeadline(time.Now().Add(within)); err != nil {
			t.Fatal(err)
		}
		_, err := conn.Read(make([]byte, 1))
		return !errors.Is(err, os.ErrDeadlineExceeded)
	}
	// etcd's listener ends a connection on which nobody speaks after five seconds.
	const soon, later = time.Second / 2, 3 * time.Second
	former := authority()
	next := newSigner(&former)
	renewed, old := next.certificate(t, "127.0.0.1"), certificate(t, "127.0.0.1")
	both := slices.Concat(encode("CERTIFICATE", next.Raw), encode("CERTIFICATE", former.Raw))
	before := connect(old)
	if err := atomicfile.Write(e.TLS.CA, both, 0o600); err != nil {
		t.Fatal(err)
	}
	if closed(before, later) || closed(connect(old), soon) || closed(connect(renewed), soon) {
		t.Error("a certificate of one of two authorities was refused")
	}
	before = connect(old)
	refused := connect(old) // for a stream
	if _, err := refused.Write([]byte("GET /raft/stream/message/none HTTP/1.1\r\nHost: peer\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewReader(refused)
	if answer, err := http.ReadResponse(answers, nil); err != nil || answer.StatusCode == http.StatusOK {
		t.Fatalf("no stream for nobody: %v, %v", answer, err)
	} else if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(renewed.CA, e.TLS.CA); err != nil {
		t.Fatal(err)
	}
	if !closed(before, later) || !closed(refused, later) {
		t.Error("a connection with a certificate of the former authority stays open")
	}
	if !closed(connect(old), later) {
		t.Error("a certificate of the former authority was taken")
	}
	if closed(connect(renewed), soon) {
		t.Error("a certificate of the new authority was refused")
	}
}
