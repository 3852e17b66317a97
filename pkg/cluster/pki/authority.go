package pki

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// errRestore is the advice for files that cannot be made again.
var errRestore = errors.New("restore it from a backup, or begin a new cluster with: coracle reset")

// ensureAuthority loads an authority, or makes it if it has never signed anything. A missing or damaged file of an authority in use is an
// error: a new authority would lock out all nodes and clients, which trust the old one.
func ensureAuthority(d paths.Dirs, a authority, now time.Time) (*pair, error) {
	cert, certErr := readCert(a.certFile(d))
	keys, keyErr := readKeys(a.keyFile(d))
	var key crypto.Signer
	switch {
	case certErr == nil && keyErr == nil:
		key = keyOf(cert, keys)
	case keyErr == nil:
		key = keys[0]
	}
	switch {
	case certErr == nil && keyErr == nil:
		return checkAuthority(d, a, &pair{cert, key}, now)
	case !missing(certErr) && certErr != nil:
		return nil, fmt.Errorf("the cluster's certificate authority: %w; %w", certErr, errRestore)
	case !missing(keyErr) && keyErr != nil:
		if absent(keyErr) {
			return nil, fmt.Errorf("the cluster's certificate authority: %w; %w", keyErr, errRestore)
		}
		return nil, fmt.Errorf("the cluster's certificate authority: %w", keyErr)
	case certErr == nil:
		return nil, fmt.Errorf("%s is missing but its certificate %s exists; %w", a.keyFile(d), a.certFile(d), errRestore)
	}
	if used := usedBy(d, a); used != "" {
		return nil, fmt.Errorf("%s is missing but %s was made with it; %w%s", missingFiles(d, a, keyErr), used, errRestore, copyHint(d, a, keyErr))
	}
	return newAuthority(d, a, key, now)
}

// newAuthority makes an authority, with an existing key or a new one. It writes the key first, so that after a crash in between the next call
// uses that key.
func newAuthority(d paths.Dirs, a authority, key crypto.Signer, now time.Time) (*pair, error) {
	if key == nil {
		var err error
		if key, err = newKey(); err != nil {
			return nil, err
		}
		if err := writeKey(a.keyFile(d), key); err != nil {
			return nil, err
		}
	}
	cert, err := sign(authorityTemplate(a, now), key, nil)
	if err != nil {
		return nil, err
	}
	return &pair{cert, key}, atomicfile.Write(a.certFile(d), encodeCert(cert), 0o644)
}

// writeKey writes a key and syncs it to disk, because a key must survive a crash of the machine once it was used.
func writeKey(path string, key crypto.Signer) error {
	data, err := encodeKey(key)
	if err != nil {
		return err
	}
	return atomicfile.Write(path, data, 0o600)
}

// checkAuthority returns an error if a loaded authority cannot sign.
func checkAuthority(d paths.Dirs, a authority, p *pair, now time.Time) (*pair, error) {
	switch {
	case !p.Cert.IsCA:
		return nil, fmt.Errorf("%s is not the certificate of an authority (CA:TRUE is missing); %w", a.certFile(d), errRestore)
	case !samePublic(p.Cert, p.Key):
		return nil, fmt.Errorf("%s is not the key of %s; %w", a.keyFile(d), a.certFile(d), errRestore)
	case selfSignedWrong(p.Cert):
		return nil, fmt.Errorf("%s is damaged: its signature is not that of its content; %w", a.certFile(d), errRestore)
	case now.After(p.Cert.NotAfter):
		return nil, fmt.Errorf("%s expired on %s (this machine's clock says %s)", a.certFile(d),
			p.Cert.NotAfter.Format(time.DateOnly), now.UTC().Format(time.DateOnly))
	}
	return p, nil
}

// selfSignedWrong reports whether a certificate names itself as its authority, and its signature is wrong: a disk has changed it.
func selfSignedWrong(c *x509.Certificate) bool {
	err := c.CheckSignature(c.SignatureAlgorithm, c.RawTBSCertificate, c.Signature)
	var old x509.InsecureAlgorithmError
	return bytes.Equal(c.RawIssuer, c.RawSubject) && err != nil && !errors.As(err, &old) && !errors.Is(err, x509.ErrUnsupportedAlgorithm)
}

// usedBy returns a file that shows that an authority has been in use, or "".
func usedBy(d paths.Dirs, a authority) string {
	for _, l := range allLeaves() {
		if l.CA == a && paths.Exists(l.certFile(d)) {
			return l.certFile(d)
		}
	}
	if a == etcdCA && paths.Exists(clusterCA.certFile(d)) {
		return "" // clusters of one server that an earlier version made have no CA for etcd
	}
	return usedCluster(d)
}

// usedCluster returns a path that shows that the API has run with the keys of this machine, or "". A copy of another cluster's data does not
// show that: it gets new keys.
func usedCluster(d paths.Dirs) string {
	if paths.Exists(d.RekeyRequest()) {
		return ""
	}
	if member := filepath.Join(d.Etcd(), "member"); paths.Exists(member) {
		return member
	}
	return ""
}

// missingFiles names the missing files of an authority: the certificate, and also the key if keyErr is not nil.
func missingFiles(d paths.Dirs, a authority, keyErr error) string {
	if keyErr == nil {
		return a.certFile(d)
	}
	return "the pair " + a.certFile(d) + " and " + filepath.Base(a.keyFile(d))
}

// copyHint names the node's copy of the cluster's CA certificate, which can replace a lost one.
func copyHint(d paths.Dirs, a authority, keyErr error) string {
	copied, err := readCert(nodeCA(d))
	if a != clusterCA || err != nil {
		return ""
	}
	if key, err := readKey(a.keyFile(d)); keyErr == nil && err == nil && samePublic(copied, key) {
		return fmt.Sprintf(" (the node has a copy: cp %s %s)", nodeCA(d), a.certFile(d))
	}
	return fmt.Sprintf(" (a copy of the certificate, without the key, is %s)", nodeCA(d))
}

// ensureServiceAccountKey makes sa.key, whose first key signs the tokens of service accounts, and the public keys sa.pub.
func ensureServiceAccountKey(d paths.Dirs) error {
	keyFile, pubFile := filepath.Join(d.PKI(), "sa.key"), filepath.Join(d.PKI(), "sa.pub")
	keys, err := readKeys(keyFile)
	switch {
	case missing(err):
		if used := usedCluster(d); used != "" {
			return fmt.Errorf("%s, which signed the tokens of service accounts in %s, is missing; %w", keyFile, used, errRestore)
		}
		key, err := newKey()
		if err != nil {
			return err
		}
		if err := writeKey(keyFile, key); err != nil {
			return err
		}
		keys = append(keys, key)
	case err != nil && absent(err):
		return fmt.Errorf("the key for service account tokens: %w; %w", err, errRestore)
	case err != nil:
		return err
	}
	var all []byte
	for _, key := range keys {
		der, err := x509.MarshalPKIXPublicKey(key.Public())
		if err != nil {
			return fmt.Errorf("encoding %s: %w", pubFile, err)
		}
		all = append(all, pem.EncodeToMemory(&pem.Block{Type: blockPublic, Bytes: der})...)
	}
	_, err = atomicfile.WriteIfChanged(pubFile, all, 0o644)
	return err
}

func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
