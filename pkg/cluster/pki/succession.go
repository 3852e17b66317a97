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
		if !vouched(next.Cert, ParseCerts(files[a.Name+crossSuffix]), ParseCerts(own)) {
			return fmt.Errorf("the new %s.crt is not one that this server's authority has signed for", a.Name)
		}
	}
	_, err := parseKeys(files[accountKey])
	return err
}

// vouched reports whether a certificate's key is that of a known authority, or of one that such have signed for in statements.
func vouched(cert *x509.Certificate, statements, known []*x509.Certificate) bool {
	return slices.ContainsFunc(Successors(known, statements), func(k *x509.Certificate) bool {
		return bytes.Equal(k.RawSubjectPublicKeyInfo, cert.RawSubjectPublicKeyInfo)
	})
}

// Vouched reports whether the first authority in a bundle in PEM form has the key of a known one, or one of those has signed for it in statements, perhaps
// through others.
func Vouched(bundle []byte, statements, known []*x509.Certificate) bool {
	cert, err := parseCert(bundle)
	return err == nil && vouched(cert, statements, known)
}

// Successors returns authorities with those among statements for which they have signed, also through others: those that replace them.
func Successors(known, statements []*x509.Certificate) []*x509.Certificate {
	all := slices.Clone(known)
	for range statements {
		for _, s := range statements {
			if s.IsCA && SignedBy(s, all) && !slices.ContainsFunc(all, s.Equal) {
				all = append(all, s)
			}
		}
	}
	return all
}

// SignedBy reports whether one of the authorities has signed a certificate, whether or not either is valid now.
func SignedBy(cert *x509.Certificate, authorities []*x509.Certificate) bool {
	return slices.ContainsFunc(authorities, func(a *x509.Certificate) bool { return a.IsCA && cert.CheckSignatureFrom(a) == nil })
}

// ParseCerts parses all certificates in PEM data.
func ParseCerts(data []byte) (out []*x509.Certificate) {
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
	return err == nil && SignedBy(cert, ParseCerts(data))
}

// Statements returns those of the former authorities for the cluster's CA, which follow the certificates that it signs, in PEM form; nil if there are none.
func Statements(d paths.Dirs) []byte { return crossOf(d, clusterCA) }

// crossOf returns the statements of former authorities for an authority, in PEM form.
func crossOf(d paths.Dirs, a authority) []byte {
	data, err := os.ReadFile(filepath.Join(d.PKI(), a.Name+crossSuffix))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return data
}

// formerOf returns the cluster's former CAs, in PEM form, without those in a bundle. Of other authorities none are kept.
func formerOf(d paths.Dirs, a authority, bundle []byte) (out []byte) {
	if a != clusterCA {
		return nil
	}
	data, err := os.ReadFile(filepath.Join(d.PKI(), formerCAs))
	if err != nil {
		return nil // there are none
	}
	present := ParseCerts(bundle)
	for _, one := range ParseCerts(data) {
		if !slices.ContainsFunc(present, one.Equal) {
			out = append(out, encodeCert(one)...)
		}
	}
	return out
}

// mostFormer bounds how many changes of an authority can be followed at once, as each adds certificates to every TLS handshake with the API.
const mostFormer = 15

// before returns a certificate and then earlier ones, in PEM form, mostFormer at most.
func before(newest *x509.Certificate, earlier []byte) []byte {
	out, former := encodeCert(newest), ParseCerts(earlier)
	for _, one := range former[:min(len(former), mostFormer-1)] {
		out = append(out, encodeCert(one)...)
	}
	return out
}
