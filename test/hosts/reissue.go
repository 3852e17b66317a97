package hosts

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Reissue replaces a certificate in a file by one of the same key with another validity, which the same authority of a server signs. What else is in
// the file stays.
func Reissue(t testing.TB, server *Host, file string, from, until time.Time) {
	t.Helper()
	if err := reissue(server, file, from, until); err != nil {
		t.Fatalf("issuing %s again: %v", file, err)
	}
}

func reissue(server *Host, file string, from, until time.Time) error {
	file = Resolve(file)
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var out []byte
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			cert, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return err
			}
			if !cert.IsCA { // else it is the end of a chain
				if block.Bytes, err = sign(server, cert, from, until); err != nil {
					return err
				}
			}
		}
		out = append(out, pem.EncodeToMemory(block)...)
	}
	return os.WriteFile(file, out, 0o600)
}

// Resolve returns the file of a symbolic link, which has the path that it has on the host, and other files as they are.
func Resolve(file string) string {
	if target, err := os.Readlink(file); err == nil {
		return filepath.Join(filepath.Dir(file), filepath.Base(target))
	}
	return file
}

// sign issues a certificate again.
func sign(server *Host, cert *x509.Certificate, from, until time.Time) ([]byte, error) {
	for _, name := range []string{"ca", "front-proxy-ca", "etcd/ca"} {
		ca, err := tls.LoadX509KeyPair(server.Data("server/pki", name+".crt"), server.Data("server/pki", name+".key"))
		if err != nil {
			return nil, err
		}
		if cert.CheckSignatureFrom(ca.Leaf) == nil {
			cert.NotBefore, cert.NotAfter = from, until
			return x509.CreateCertificate(rand.Reader, cert, ca.Leaf, cert.PublicKey, ca.PrivateKey)
		}
	}
	return nil, fmt.Errorf("no authority of %s has signed it", server.Name)
}
