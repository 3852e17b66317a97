package dataplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"math/big"
	"time"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// fallbackName is the name in the certificate for connections that ask for a host without one.
const fallbackName = "no-certificate.coracle.invalid"

// fallback makes the certificate for hosts without one, which no client trusts.
func fallback() (gateway.Certificate, error) { return selfSigned("fallback", fallbackName) }

func selfSigned(source, name string) (gateway.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return gateway.Certificate{}, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return gateway.Certificate{}, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "coracle: this host has no certificate"}, DNSNames: []string{name},
		NotBefore: now.Add(-24 * time.Hour), NotAfter: now.AddDate(10, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return gateway.Certificate{}, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return gateway.Certificate{}, err
	}
	return gateway.Certificate{
		Source: source,
		Chain:  string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		Key:    string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})),
	}, nil
}

// usable divides certificates into those that can serve, and the reasons why others cannot: one that is garbage must not take the others away.
func usable(all []gateway.Certificate) (fine []gateway.Certificate, refused map[string]string) {
	refused = map[string]string{}
	for _, c := range all {
		var err error
		if c.Chain, c.Key, _, err = gateway.KeyPair([]byte(c.Chain), []byte(c.Key)); err != nil {
			refused[c.Source] = err.Error()
			continue
		}
		fine = append(fine, c)
	}
	return fine, refused
}

// tagOf returns the tag by which Caddy's configuration refers to a certificate: to what its source has now, because one that another source goes on to have keeps
// its tags.
func tagOf(c gateway.Certificate) string {
	sum := sha256.Sum256([]byte(c.Source + "\n" + c.Chain))
	return hex.EncodeToString(sum[:])
}
