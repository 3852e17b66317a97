package e2e

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"testing"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
)

// machine is a machine without coracle that tries to join.
type machine struct {
	name, version string
	replace       bool
	key           crypto.PrivateKey
	template      *x509.CertificateRequest
	csr           []byte
}

// newMachine has its own key, and a certificate request for the given user and group.
func newMachine(t *testing.T, name, user, group string) *machine {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{name: name, version: "v1.37.0", key: key,
		template: &x509.CertificateRequest{Subject: pkix.Name{CommonName: user, Organization: []string{group}}}}
	m.sign(t, key)
	return m
}

// sign replaces the certificate request, using the given key.
func (m *machine) sign(t *testing.T, key crypto.PrivateKey) {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, m.template, key)
	if err != nil {
		t.Fatal(err)
	}
	m.csr = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

func (m *machine) request() join.Request {
	return join.Request{Node: m.name, Version: m.version, CSR: m.csr, Replace: m.replace}
}
