package pki

import (
	"bytes"
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/clock"
)

// PEM block types.
const (
	blockCert   = "CERTIFICATE"
	blockECKey  = "EC PRIVATE KEY"
	blockPKCS8  = "PRIVATE KEY"
	blockRSAKey = "RSA PRIVATE KEY"
	blockPublic = "PUBLIC KEY"

	blockRequest = "CERTIFICATE REQUEST"
)

// Validity of certificates.
const (
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 365 * 24 * time.Hour // unless the configuration has another
	// backdate is because the clocks of a cluster's machines differ, and because one that was wrong is set back. It is at most as long as the life.
	backdate = 30 * 24 * time.Hour
)

// validity is the period for a certificate that is issued now. A board without a battery boots in 1970; a certificate that it signs before
// it learns the time is still valid then.
func validity(now time.Time, life time.Duration) (notBefore, notAfter time.Time) {
	notBefore, from := now.Add(-min(backdate, life)), now
	if from.Before(clock.Floor) {
		from = clock.Floor
	}
	return notBefore.UTC(), from.Add(life).UTC()
}

// renewAt is the time when two thirds of a certificate's life have passed, without what it is dated back.
func renewAt(c *x509.Certificate) time.Time {
	whole := c.NotAfter.Sub(c.NotBefore)
	return c.NotAfter.Add(-min(max(whole-backdate, whole/2), leafLife) / 3)
}

// pair is a certificate and its key.
type pair struct {
	Cert *x509.Certificate
	Key  crypto.Signer
}

// newKey makes a private key, ECDSA P-256 as all keys of coracle's.
func newKey() (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a private key: %w", err)
	}
	return key, nil
}

func encodeKey(key crypto.Signer) ([]byte, error) {
	kind, der, err := blockPKCS8, []byte(nil), error(nil)
	if ec, ok := key.(*ecdsa.PrivateKey); ok {
		kind = blockECKey
		der, err = x509.MarshalECPrivateKey(ec)
	} else {
		der, err = x509.MarshalPKCS8PrivateKey(key)
	}
	if err != nil {
		return nil, fmt.Errorf("encoding a private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), nil
}

func encodeCert(cert *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: blockCert, Bytes: cert.Raw})
}

// parseKey finds the first private key in PEM data.
func parseKey(data []byte) (crypto.Signer, error) {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		var key any
		var err error
		switch block.Type {
		case blockECKey:
			key, err = x509.ParseECPrivateKey(block.Bytes)
		case blockRSAKey:
			key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
		case blockPKCS8:
			key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		default:
			continue
		}
		if err != nil {
			return nil, err
		}
		signer, ok := key.(crypto.Signer)
		if !ok {
			return nil, errors.New("the private key cannot sign")
		}
		return signer, nil
	}
	return nil, errors.New("no private key in PEM form")
}

// parseCert finds the first certificate in PEM data.
func parseCert(data []byte) (*x509.Certificate, error) {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == blockCert {
			return x509.ParseCertificate(block.Bytes)
		}
	}
	return nil, errors.New("no certificate in PEM form")
}

// readKey reads a private key that other users can neither read nor replace. The error of a missing file is fs.ErrNotExist.
func readKey(path string) (crypto.Signer, error) {
	if err := checkPrivate(path); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	key, err := parseKey(data)
	if err != nil {
		return nil, &damagedError{path, err}
	}
	return key, nil
}

// readCert reads a certificate. The error of a missing file is fs.ErrNotExist.
func readCert(path string) (*x509.Certificate, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	cert, err := parseCert(data)
	if err != nil {
		return nil, &damagedError{path, err}
	}
	return cert, nil
}

// readCerts reads all certificates of a file, at least one.
func readCerts(path string) ([]*x509.Certificate, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if _, err := parseCert(data); err != nil {
		return nil, &damagedError{path, err}
	}
	return ParseCerts(data), nil
}

// damagedError reports a file with invalid content.
type damagedError struct {
	path string
	err  error
}

func (e *damagedError) Error() string { return fmt.Sprintf("%s is damaged: %v", e.path, e.err) }
func (e *damagedError) Unwrap() error { return e.err }

// absent reports whether an error means that a file is missing or damaged, so that a leaf can be issued again. Other errors, such as a wrong
// mode, must be corrected by the administrator.
func absent(err error) bool {
	return missing(err) || errors.As(err, new(*damagedError))
}

// checkPrivate returns an error with the fix if other users can read a key file, or replace it in its directory.
func checkPrivate(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fmt.Errorf("private key %s is open to other users (mode %04o); run: chmod 600 %s", path, mode, path)
	}
	if uid, ok := owner(info); ok && uid != os.Geteuid() {
		return fmt.Errorf("private key %s belongs to user id %d; run: chown %d %s", path, uid, os.Geteuid(), path)
	}
	dir := filepath.Dir(path)
	if info, err = os.Stat(dir); err != nil {
		return err
	}
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		return fmt.Errorf("directory %s, which holds private keys, can be written by other users (mode %04o); run: chmod 700 %s", dir, mode, dir)
	}
	return nil
}

func owner(info fs.FileInfo) (uid int, ok bool) {
	if stat, is := info.Sys().(*syscall.Stat_t); is {
		return int(stat.Uid), true
	}
	return 0, false
}

// samePublic reports whether the key is the certificate's.
func samePublic(cert *x509.Certificate, key crypto.Signer) bool {
	a, errA := x509.MarshalPKIXPublicKey(cert.PublicKey)
	b, errB := x509.MarshalPKIXPublicKey(key.Public())
	return errA == nil && errB == nil && bytes.Equal(a, b)
}

// sign signs a certificate for a key. Without a signer the certificate is self-signed.
func sign(template *x509.Certificate, key crypto.Signer, signer *pair) (*x509.Certificate, error) {
	if signer == nil {
		signer = &pair{Cert: template, Key: key}
	}
	return signPublic(template, key.Public(), signer)
}

// signPublic signs a certificate for a public key. It completes the template with the serial number and limits the validity to the signer's.
func signPublic(template *x509.Certificate, public crypto.PublicKey, signer *pair) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial.Add(serial, big.NewInt(1))
	template.BasicConstraintsValid = true
	if template.NotAfter.After(signer.Cert.NotAfter) {
		template.NotAfter = signer.Cert.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer.Cert, public, signer.Key)
	if err != nil {
		return nil, fmt.Errorf("signing certificate %q: %w", template.Subject.CommonName, err)
	}
	return x509.ParseCertificate(der)
}

func authorityTemplate(a authority, now time.Time) *x509.Certificate {
	_, notAfter := validity(now, authorityLife)
	return &x509.Certificate{
		Subject: pkix.Name{CommonName: a.CN},
		// Valid from the epoch on, because a board without a battery must trust its cluster before it knows the time.
		NotBefore: time.Unix(0, 0).UTC(),
		NotAfter:  notAfter,
		KeyUsage:  x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment | x509.KeyUsageCertSign,
		IsCA:      true,
		DNSNames:  []string{a.CN},
	}
}

func leafTemplate(want desired, now time.Time) *x509.Certificate {
	notBefore, notAfter := validity(now, cmp.Or(want.Life, leafLife))
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: want.CN},
		NotBefore:   notBefore,
		NotAfter:    notAfter,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: want.Usage,
		DNSNames:    want.SANs.DNS,
	}
	if want.Group != "" {
		template.Subject.Organization = []string{want.Group}
	}
	for _, ip := range want.SANs.IPs {
		template.IPAddresses = append(template.IPAddresses, net.IP(ip.AsSlice()))
	}
	return template
}
