package gateway

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
)

// TestKeyPair: nothing but a certificate that can serve comes through, and nothing of the text around it.
func TestKeyPair(t *testing.T) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	key := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	certificate := func(name string, public any, dns ...string) []byte {
		template := x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{Organization: []string{"me"}, CommonName: name}, DNSNames: dns}
		der, err := x509.CreateCertificate(rand.Reader, &template, &template, public, private)
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	}
	good := certificate("a.test", private.Public())
	other := func(kind string) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: []byte("x")}) }
	around := append(append([]byte("{env.PATH}\n"), other("{file.x")...), append(good, other("y}")...)...)
	for name, c := range map[string]struct {
		chain, key []byte
		err        string
	}{
		"good":        {good, key, ""},
		"text around": {around, append(other("{file.x"), key...), ""},
		"no name":     {certificate("", private.Public()), key, "no name"},
		"empty name":  {certificate("", private.Public(), "", ""), key, "no name"},
		"garbage":     {[]byte("{file.config.json}"), key, "failed to find"},
		"other key":   {certificate("a.test", &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), 2048), E: 65537}), key, "private key type does not match"},
		"large key":   {good, append(key, make([]byte, maxKey)...), "more than"},
		"large chain": {append(good, make([]byte, maxChain)...), key, "more than"},
	} {
		t.Run(name, func(t *testing.T) {
			chain, private, leaf, err := KeyPair(c.chain, c.key)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("%v, want %q", err, c.err)
				}
				return
			}
			if err != nil || chain != string(good) || private != string(key) || leaf.Subject.CommonName != "a.test" {
				t.Errorf("%s%s, %v", chain, private, err)
			}
		})
	}
}
