package pki

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// CheckSuccession returns an error unless files, as of Rotation.Files, are those of the cluster that this server belongs to: this server's
// authorities are among theirs, or have signed for them. Otherwise a damaged or foreign record would lock everybody out.
func CheckSuccession(d paths.Dirs, files map[string][]byte) error {
	for _, a := range authorities {
		next, err := parseAuthority(files[a.Name+".crt"], files[a.Name+".key"], time.Now())
		if err != nil {
			return fmt.Errorf("the new %s.crt and %[1]s.key: %w", a.Name, err)
		}
		own, err := os.ReadFile(a.certFile(d))
		if err != nil {
			return err
		}
		if !vouched(next.Cert, parseCerts(files[a.Name+crossSuffix]), parseCerts(own)) {
			return fmt.Errorf("the new %s.crt is not one that this server's authority has signed for", a.Name)
		}
	}
	_, err := parseKeys(files[accountKey])
	return err
}

// vouched reports whether a certificate's key is that of a known authority, or one of them has signed for it, perhaps through others.
func vouched(cert *x509.Certificate, statements, known []*x509.Certificate) bool {
	for range len(statements) + 1 {
		if slices.ContainsFunc(known, func(k *x509.Certificate) bool {
			return bytes.Equal(k.RawSubjectPublicKeyInfo, cert.RawSubjectPublicKeyInfo)
		}) {
			return true
		}
		for _, s := range statements {
			if slices.ContainsFunc(known, func(k *x509.Certificate) bool { return s.IsCA && s.CheckSignatureFrom(k) == nil }) && !slices.ContainsFunc(known, s.Equal) {
				known = append(slices.Clone(known), s)
			}
		}
	}
	return false
}

// Vouched reports whether an authority in PEM form, the first in a bundle, has the key of one in another bundle, or one there has signed for it in
// statements.
func Vouched(bundle []byte, statements []*x509.Certificate, known []byte) bool {
	cert, err := parseCert(bundle)
	return err == nil && vouched(cert, statements, parseCerts(known))
}

// parseCerts parses all certificates in PEM data.
func parseCerts(data []byte) (out []*x509.Certificate) {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == blockCert {
			out = append(out, cert)
		}
	}
	return out
}

// parseKeys parses all private keys in PEM data, at least one.
func parseKeys(data []byte) (keys []crypto.Signer, err error) {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if !strings.HasSuffix(block.Type, blockPKCS8) {
			continue
		}
		key, err := parseKey(pem.EncodeToMemory(block))
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		_, err = parseKey(nil)
	}
	return keys, err
}

// readKeys reads all keys of a file; see readKey.
func readKeys(path string) ([]crypto.Signer, error) {
	if err := checkPrivate(path); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	keys, err := parseKeys(data)
	if err != nil {
		return nil, &damagedError{path, err}
	}
	return keys, nil
}

// keyOf returns the key of a certificate, or the first one if none is. While authorities are changed, a file has the keys of two.
func keyOf(cert *x509.Certificate, keys []crypto.Signer) crypto.Signer {
	if i := slices.IndexFunc(keys, func(key crypto.Signer) bool { return samePublic(cert, key) }); i >= 0 {
		return keys[i]
	}
	return keys[0]
}

// SignedByFormer reports whether a former CA of the cluster has signed the certificate of a node, whether or not it is valid still. It proves no more than
// that the cluster knew the key.
func SignedByFormer(d paths.Dirs, cert *x509.Certificate) bool {
	data, err := os.ReadFile(filepath.Join(d.PKI(), formerCAs))
	return err == nil && SignedBy(cert, data)
}

// SignedBy reports whether one of the authorities in a bundle has signed a certificate.
func SignedBy(cert *x509.Certificate, bundle []byte) bool {
	return slices.ContainsFunc(parseCerts(bundle), func(ca *x509.Certificate) bool { return cert.CheckSignatureFrom(ca) == nil })
}

// crossOf returns the statements of former authorities for an authority, in PEM form.
func crossOf(d paths.Dirs, a authority) []byte {
	data, err := os.ReadFile(filepath.Join(d.PKI(), a.Name+crossSuffix))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return data
}
