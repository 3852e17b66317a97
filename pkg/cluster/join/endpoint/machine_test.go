package endpoint

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"testing"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/cluster/pki"
)

// machine is one that asks.
type machine struct {
	key     *ecdsa.PrivateKey
	request join.Request
}

func newMachine(t *testing.T, node string) *machine {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{key, join.Request{Node: node, Version: "v1.37.1+coracle.1"}}
	m.sign(t)
	return m
}

// sign makes the machine's request for a certificate.
func (m *machine) sign(t *testing.T) {
	subject := pkix.Name{CommonName: pki.NodeUser + m.request.Node, Organization: []string{pki.NodeGroup}}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, m.key)
	if err != nil {
		t.Fatal(err)
	}
	m.request.CSR = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}
