package gateway

import (
	"bytes"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

// Bounds of what users give as certificates: whoever reads one, and signs with its key, takes time that others wait for.
const (
	maxChain   = 128 << 10 // bytes of PEM
	maxKey     = 8 << 10   // bytes of PEM
	maxRSABits = 8192      // as clients that are written in Go accept
)

// KeyPair checks a certificate with its key, and returns both as PEM that is made anew, so that nothing else of the user's texts goes further,
// with the certificate itself. The error says what is wrong in words for the user.
func KeyPair(chain, key []byte) (newChain, newKey string, leaf *x509.Certificate, err error) {
	if len(chain) > maxChain || len(key) > maxKey {
		return "", "", nil, fmt.Errorf("tls.crt has more than %d KiB, or tls.key more than %d KiB", maxChain>>10, maxKey>>10)
	}
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return "", "", nil, errors.New(strings.TrimPrefix(err.Error(), "tls: "))
	}
	if public, ok := pair.Leaf.PublicKey.(*rsa.PublicKey); ok && public.N.BitLen() > maxRSABits {
		return "", "", nil, fmt.Errorf("the RSA key has more than %d bits", maxRSABits)
	}
	// CertMagic refuses one without a name, and then Caddy loads none at all. A DNS name can be empty.
	if pair.Leaf.Subject.CommonName == "" && strings.Join(pair.Leaf.DNSNames, "") == "" && len(pair.Leaf.IPAddresses) == 0 {
		return "", "", nil, errors.New("the certificate has no name")
	}
	private, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		return "", "", nil, err
	}
	var out bytes.Buffer
	for _, der := range pair.Certificate {
		if err := pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: der}); err != nil {
			return "", "", nil, err
		}
	}
	return out.String(), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})), pair.Leaf, nil
}
