package nodeguard

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/http"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	authx509 "k8s.io/apiserver/pkg/authentication/request/x509"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/cluster/pki"
)

// issuer is a CA with a name that others can have too.
type issuer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func sign(t *testing.T, template, parent *x509.Certificate, public any, key any) *x509.Certificate {
	t.Helper()
	template.SerialNumber = big.NewInt(1)
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// newIssuer makes a CA. It began half a year ago, as one that was renewed with the same key.
func newIssuer(t *testing.T) issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "the CA"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().AddDate(0, -6, 0), NotAfter: time.Now().AddDate(9, 0, 0)}
	return issuer{sign(t, template, template, key.Public(), key), key}
}

// node issues a certificate that is valid from and to some months from now.
func (i issuer) node(t *testing.T, user string, from, to int, usage x509.ExtKeyUsage) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: user, Organization: []string{pki.NodeGroup}}, ExtKeyUsage: []x509.ExtKeyUsage{usage},
		NotBefore: time.Now().AddDate(0, from, 0), NotAfter: time.Now().AddDate(0, to, 0)}, i.cert, key.Public(), i.key)
}

// TestExpired: the expired certificate of a node is good for renewing it and for nothing else, and only one that this cluster's CA signed.
func TestExpired(t *testing.T) {
	ours, forger := newIssuer(t), newIssuer(t)
	roots := x509.NewCertPool()
	roots.AddCert(ours.cert)
	upstream := authx509.New(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, authx509.CommonNameUserConversion)
	guarded := New(func(string) {}).Authenticator(authenticator.RequestFunc(upstream.AuthenticateRequest))
	const client, node = x509.ExtKeyUsageClientAuth, "system:coracle:node:n"
	for _, test := range []struct {
		name         string
		cert         *x509.Certificate
		method, path string
		ok           bool
	}{
		{"renews", ours.node(t, node, -13, -1, client), http.MethodPost, join.PathAgent, true},
		{"off for years", ours.node(t, node, -63, -51, client), http.MethodPost, join.PathAgent, true},
		{"valid", ours.node(t, node, -1, 11, client), http.MethodGet, "/api", true},
		{"reads", ours.node(t, node, -13, -1, client), http.MethodGet, join.PathAgent, false},
		{"asks for settings", ours.node(t, node, -13, -1, client), http.MethodGet, join.PathCluster, false},
		{"writes objects", ours.node(t, node, -13, -1, client), http.MethodPost, "/api/v1/nodes", false},
		{"joins as a server", ours.node(t, node, -13, -1, client), http.MethodPost, join.PathServer, false},
		{"not valid yet", ours.node(t, node, 1, 13, client), http.MethodPost, join.PathAgent, false},
		{"a kubelet's", ours.node(t, "system:node:n", -13, -1, client), http.MethodPost, join.PathAgent, false},
		{"a user's", ours.node(t, "admin", -13, -1, client), http.MethodPost, join.PathAgent, false},
		{"of a CA with the same name", forger.node(t, node, -13, -1, client), http.MethodPost, join.PathAgent, false},
		{"for serving", ours.node(t, node, -13, -1, x509.ExtKeyUsageServerAuth), http.MethodPost, join.PathAgent, false},
	} {
		r := requestBy(t.Context(), test.cert, test.method, test.path)
		end := test.cert.NotAfter
		response, ok, err := guarded.AuthenticateRequest(r)
		if ok != test.ok || ok != (err == nil) || ok && response.User.GetName() != node {
			t.Errorf("%s: %v, %v", test.name, ok, err)
		}
		if got := r.TLS.PeerCertificates[0]; got != test.cert || !got.NotAfter.Equal(end) {
			t.Errorf("%s: the handlers see another certificate", test.name)
		}
	}
	r := requestBy(t.Context(), forger.node(t, node, -13, -1, client), http.MethodPost, join.PathAgent)
	r.TLS.PeerCertificates = append(r.TLS.PeerCertificates, forger.cert) // with its chain, and a good one behind it
	r.TLS.PeerCertificates = append(r.TLS.PeerCertificates, ours.node(t, node, -13, -1, client))
	if _, ok, _ := guarded.AuthenticateRequest(r); ok {
		t.Error("a forged chain is accepted")
	}
}
