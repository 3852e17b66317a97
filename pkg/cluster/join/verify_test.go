package join

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/config"
)

// apiserverPair is the certificate and key of a server, with the chain that it sends.
func apiserverPair(t *testing.T, cfg config.Config) tls.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(cfg.Dirs.PKI()+"/apiserver.crt", cfg.Dirs.PKI()+"/apiserver.key")
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// leafBy signs a server's certificate with a CA of the same name as a cluster's, or with the key of one of its certificates.
func leafBy(t *testing.T, parent *x509.Certificate, key *ecdsa.PrivateKey) tls.Certificate {
	t.Helper()
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: apiserverCN}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, own.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: own}
}

// TestForgedChains: the CA's certificate is public, so whoever sends it along proves nothing. No request, and no token, goes to
// a server whose own certificate the pinned CA did not sign.
func TestForgedChains(t *testing.T) {
	ours, other := machine(t, "boat-1"), machine(t, "boat-9")
	realCA := pki.ParseCerts(ca(t, ours))[0]
	attackerKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	sameName := &x509.Certificate{Raw: realCA.Raw, RawSubject: realCA.RawSubject, Subject: realCA.Subject, SubjectKeyId: realCA.SubjectKeyId, IsCA: true}
	node := pairInOneFile(t, ours.Dirs.NodePKI()+"/kubelet-server-current.pem")
	nodeKey, isEC := node.PrivateKey.(*ecdsa.PrivateKey)
	if !isEC {
		t.Fatalf("the kubelet's key is %T", node.PrivateKey)
	}
	nodeCert, err := x509.ParseCertificate(node.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	withChain := func(pair tls.Certificate, chain ...[]byte) tls.Certificate {
		pair.Certificate = append([][]byte{pair.Certificate[0]}, chain...)
		return pair
	}
	// A statement for an attacker's authority, by one that has no more than the name of ours.
	next := &x509.Certificate{SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: "next"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	statement, err := x509.CreateCertificate(rand.Reader, next, sameName, attackerKey.Public(), attackerKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, pair := range map[string]tls.Certificate{
		"another cluster's certificate with our CA behind it": withChain(apiserverPair(t, other), realCA.Raw),
		"both CAs behind it":                                withChain(apiserverPair(t, other), pki.ParseCerts(ca(t, other))[0].Raw, realCA.Raw),
		"a CA of the same name and key identifier":          withChain(leafBy(t, sameName, attackerKey), realCA.Raw),
		"signed by a node, whose certificate our CA signed": withChain(leafBy(t, nodeCert, nodeKey), nodeCert.Raw, realCA.Raw),
		"a statement that our CA has not signed":            withChain(leafBy(t, next, attackerKey), statement, realCA.Raw),
		"no chain":                                          withChain(leafBy(t, sameName, attackerKey)),
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Bool
			url := serveWith(t, pair, func(http.ResponseWriter, *http.Request) { asked.Store(true) })
			for _, client := range []Client{
				{Server: url, Token: tokenFor(t, ours)},
				{Server: url, Token: tokenFor(t, ours), CA: ca(t, ours)},
			} {
				if _, err := client.Join(t.Context(), PathAgent, request(t)); err == nil || !strings.Contains(err.Error(), "another cluster") {
					t.Errorf("got %v", err)
				}
			}
			if asked.Load() {
				t.Error("the request was sent")
			}
		})
	}
}

// TestStatements: a token that names a former CA is for the server whose CA that one has signed a statement for, and for no other one.
func TestStatements(t *testing.T) {
	ours := machine(t, "boat-1")
	former, formerCA := tokenFor(t, ours), ca(t, ours)
	for _, stage := range []pki.RotationStage{pki.Signing, pki.Finished} {
		replaceCA(t, ours, stage)
		pair := apiserverPair(t, ours)
		for _, client := range []Client{{Token: former}, {Token: former, CA: formerCA}, {Token: tokenFor(t, ours)}} {
			client.Server = serveWith(t, pair, admit(t, ours))
			if _, err := client.Join(t.Context(), PathAgent, request(t)); err != nil {
				t.Errorf("%s: %v", stage, err)
			}
		}
		stated := 0
		for i, der := range pair.Certificate {
			cert, err := x509.ParseCertificate(der)
			if err != nil {
				t.Fatal(err)
			}
			if cert.CheckSignatureFrom(pki.ParseCerts(formerCA)[0]) != nil || cert.Equal(pki.ParseCerts(formerCA)[0]) {
				continue
			}
			stated++
			without := pair
			without.Certificate = slices.Delete(slices.Clone(pair.Certificate), i, i+1)
			client := Client{Server: serveWith(t, without, admit(t, ours)), Token: former}
			if _, err := client.Join(t.Context(), PathAgent, request(t)); err == nil || !strings.Contains(err.Error(), "another cluster") {
				t.Errorf("%s, without the statement: %v", stage, err)
			}
		}
		if stated == 0 {
			t.Errorf("%s: there is no statement in the chain", stage)
		}
	}
}

// TestResponseNamesPinnedCA: a machine that trusts a CA already does not take the response for that of the token's cluster.
func TestResponseNamesPinnedCA(t *testing.T) {
	ours, other := machine(t, "boat-1"), machine(t, "boat-9")
	client := Client{Server: serveAs(t, ours, admit(t, ours)), CA: ca(t, ours), Token: tokenFor(t, other)}
	if _, err := client.Join(t.Context(), PathAgent, request(t)); err == nil || !strings.Contains(err.Error(), "another CA than the token names") {
		t.Errorf("got %v", err)
	}
	client.Token = tokenFor(t, ours)
	if _, err := client.Join(t.Context(), PathAgent, request(t)); err != nil {
		t.Error(err)
	}
}

// TestServersCertificateOnly: a certificate with the right name that is not for servers is not a server's.
func TestServersCertificateOnly(t *testing.T) {
	ours := machine(t, "boat-1")
	admin, err := tls.LoadX509KeyPair(ours.Dirs.PKI()+"/apiserver-kubelet-client.crt", ours.Dirs.PKI()+"/apiserver-kubelet-client.key")
	if err != nil {
		t.Fatal(err)
	}
	url := serveWith(t, admin, admit(t, ours))
	if _, err := (Client{Server: url, Token: tokenFor(t, ours)}).Join(t.Context(), PathAgent, request(t)); err == nil || !strings.Contains(err.Error(), "not a coracle server") {
		t.Errorf("got %v", err)
	}
	leaf, err := x509.ParseCertificate(apiserverPair(t, ours).Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	w := &verifier{client: Client{Server: "x", CA: ca(t, ours)}}
	if err := w.verify(tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}); err == nil {
		t.Error("a client's certificate was accepted for a server's")
	}
}

func pairInOneFile(t *testing.T, file string) tls.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(file, file)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func serveWith(t *testing.T, pair tls.Certificate, handler http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL
}
