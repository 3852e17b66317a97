package kubelet

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/clock"
)

// TestSetBack sets the clock back behind the begin of the kubelet's certificates: they are removed, so that others are requested, unless
// the clock is certainly wrong.
func TestSetBack(t *testing.T) {
	for _, c := range []struct {
		name   string
		before time.Duration // the time is so long before the certificates' begin
		years  bool          // the clock shows the year 2000
		kept   bool
	}{
		{"valid", -time.Hour, false, true},
		{"set back by a day", 24 * time.Hour, false, false},
		{"a board without a battery", 27 * 365 * 24 * time.Hour, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := Kubelet{Name: "boat", PKI: t.TempDir(), BootstrapKubeconfig: "bootstrap"}
			k.ClientCA = filepath.Join(k.PKI, "ca.crt")
			synctest.Test(t, func(t *testing.T) {
				if !c.years {
					time.Sleep(time.Until(clock.Floor.Add(100 * 24 * time.Hour)))
				}
				writeCertificates(t, k, time.Now().Add(c.before))
				if err := k.removeInvalid(); err != nil {
					t.Fatal(err)
				}
				if err := k.removeEarly(); err != nil {
					t.Fatal(err)
				}
			})
			for _, name := range []string{currentCert, servingCert} {
				if _, err := os.Stat(filepath.Join(k.PKI, name)); (err == nil) != c.kept {
					t.Errorf("%s is there: %t (%v)", name, err == nil, err)
				}
			}
		})
	}
}

// writeCertificates writes the kubelet's certificates, which are valid for a year from then on, and their authority.
func writeCertificates(t *testing.T, k Kubelet, from time.Time) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "system:node:" + k.Name}, NotBefore: from, NotAfter: from.AddDate(1, 0, 0),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	data := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	pair := append(data, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})...)
	for file, content := range map[string][]byte{k.ClientCA: data, filepath.Join(k.PKI, currentCert): pair, filepath.Join(k.PKI, servingCert): pair} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
