package pki

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// nodeLeaf is the identity of a node.
func nodeLeaf() leaf {
	l, _ := leafNamed("node")
	return l
}

// NodeFiles names the certificate and the key with which the node's own parts call the API.
func NodeFiles(d paths.Dirs) (certFile, keyFile string) {
	l := nodeLeaf()
	return l.certFile(d), l.keyFile(d)
}

// ServerFiles names the certificate and the key with which coracle's own parts of a control plane call the API.
func ServerFiles(d paths.Dirs) (certFile, keyFile string) {
	l, _ := leafNamed("coracle")
	return l.certFile(d), l.keyFile(d)
}

// NodeRequest asks for the node's client certificate: a PKCS #10 request in PEM form. It makes the node's key if
// there is none; from then on the key is the machine's identity.
func NodeRequest(d paths.Dirs, node string) ([]byte, error) {
	l := nodeLeaf()
	key, err := readKey(l.keyFile(d))
	if absent(err) {
		key, err = l.makeKey(d)
	}
	if err != nil {
		return nil, err
	}
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: l.commonName(node), Organization: []string{l.Group}}}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		return nil, fmt.Errorf("asking for the node's certificate: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: blockRequest, Bytes: der}), nil
}

// CheckNodeRequest validates a request of NodeRequest for the named node and returns the fingerprint of its key. The error is a message for the
// machine that sent the request.
func CheckNodeRequest(csr []byte, node string) (identity string, err error) {
	r, err := parseRequest(csr)
	if err != nil {
		return "", err
	}
	l := nodeLeaf()
	if want := l.commonName(node); r.Subject.CommonName != want || !slices.Equal(r.Subject.Organization, []string{l.Group}) {
		return "", fmt.Errorf("the certificate request is for %q, not for %q of %s", r.Subject.String(), want, l.Group)
	}
	if len(r.DNSNames)+len(r.IPAddresses)+len(r.EmailAddresses)+len(r.URIs) > 0 {
		return "", errors.New("the certificate request is for a server's names too, and a node's client certificate has none")
	}
	return fingerprint(r.RawSubjectPublicKeyInfo), nil
}

func parseRequest(csr []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(csr)
	if block == nil || block.Type != blockRequest {
		return nil, errors.New("the certificate request is not in PEM form")
	}
	r, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("the certificate request is damaged: %w", err)
	}
	if err := r.CheckSignature(); err != nil {
		return nil, fmt.Errorf("the certificate request is not signed with its key: %w", err)
	}
	return r, nil
}

// SignNode signs a request of NodeRequest's for the named node with the cluster's CA and returns the certificate in PEM form.
func SignNode(d paths.Dirs, csr []byte, node string) ([]byte, error) {
	if _, err := CheckNodeRequest(csr, node); err != nil {
		return nil, err
	}
	r, err := parseRequest(csr)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	ca, err := ensureAuthority(d, clusterCA, now)
	if err != nil {
		return nil, err
	}
	l := nodeLeaf()
	cert, err := signPublic(leafTemplate(wanted{leaf: l, CN: l.commonName(node)}, now), r.PublicKey, ca)
	if err != nil {
		return nil, err
	}
	return encodeCert(cert), nil
}

// Identity is the fingerprint of the node's key on this machine, as CheckNodeRequest tells it; "" if it has none.
func Identity(d paths.Dirs) (string, error) {
	key, err := readKey(nodeLeaf().keyFile(d))
	if missing(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return "", fmt.Errorf("encoding the node's public key: %w", err)
	}
	return fingerprint(der), nil
}

// CAPin is the fingerprint of the key with which a cluster signs, of its CA certificate in PEM form; of a chain, the first.
func CAPin(ca []byte) (string, error) {
	cert, err := parseCert(ca)
	if err != nil {
		return "", fmt.Errorf("reading the cluster's CA certificate: %w", err)
	}
	return fingerprint(cert.RawSubjectPublicKeyInfo), nil
}

func fingerprint(publicKeyInfo []byte) string {
	sum := sha256.Sum256(publicKeyInfo)
	return hex.EncodeToString(sum[:])
}

// AcceptNode takes what a cluster answered to NodeRequest: its CA and the node's certificate. They are on disk when it
// returns.
func AcceptNode(cfg config.Config, ca, cert []byte) error {
	l := nodeLeaf()
	key, err := readKey(l.keyFile(cfg.Dirs))
	if err != nil {
		return err
	}
	got, err := parseCert(cert)
	if err != nil {
		return fmt.Errorf("reading the certificate that the server answered with: %w", err)
	}
	signer, err := parseCert(ca)
	if err != nil {
		return fmt.Errorf("reading the CA that the server answered with: %w", err)
	}
	w := l.wanted(cfg)
	if err := w.mismatch(got, key, &pair{Cert: signer}, got.NotBefore); err != nil {
		return fmt.Errorf("the server answered with a certificate of no use: %w", err)
	}
	if _, err := atomicfile.WriteIfChanged(nodeCA(cfg.Dirs), ca, 0o644); err != nil {
		return err
	}
	_, err = atomicfile.WriteIfChanged(l.certFile(cfg.Dirs), cert, 0o644)
	return err
}

// EnsureAgent writes the kubeconfigs of an agent that has joined.
func EnsureAgent(cfg config.Config) error {
	return writeAccess(cfg, nodeAccess, nodeCA(cfg.Dirs), balancer(cfg))
}

// NodeCert checks the node's certificate: it must be for this node name and signed by the known CA. due is the time from which it is renewed,
// expires the end of its validity. The error is fs.ErrNotExist if the node has not joined.
func NodeCert(cfg config.Config) (due, expires time.Time, err error) {
	l := nodeLeaf()
	key, err := readKey(l.keyFile(cfg.Dirs))
	if err != nil {
		return due, expires, err
	}
	cert, err := readCert(l.certFile(cfg.Dirs))
	if err != nil {
		return due, expires, err
	}
	ca, err := readCert(nodeCA(cfg.Dirs))
	if err != nil {
		return due, expires, err
	}
	// The validity period is checked by the caller: a machine without a clock is in the year 1970 until it has a network.
	if err := l.wanted(cfg).mismatch(cert, key, &pair{Cert: ca}, cert.NotBefore); err != nil {
		return due, expires, fmt.Errorf("%s: %w", l.certFile(cfg.Dirs), err)
	}
	return renewAt(cert), cert.NotAfter, nil
}

// keyFiles are the cluster's own keys, which all its servers have: names below the PKI directory.
func keyFiles() []string {
	files := []string{"sa.key"}
	for _, a := range authorities {
		files = append(files, a.Name+".key", a.Name+".crt")
	}
	return files
}

// ReadKeys returns the cluster's own keys and authorities, for a server that joins: names below the PKI directory and
// content.
func ReadKeys(d paths.Dirs) (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, name := range keyFiles() {
		data, err := os.ReadFile(filepath.Join(d.PKI(), name))
		if err != nil {
			return nil, fmt.Errorf("reading the cluster's keys: %w", err)
		}
		out[name] = data
	}
	return out, nil
}

// WriteKeys puts the cluster's keys where a server has them, as ReadKeys returned them on another. They are on disk when
// it returns. It can be interrupted at any point and repeated.
func WriteKeys(d paths.Dirs, files map[string][]byte) error {
	for _, name := range keyFiles() {
		data := files[name]
		if len(bytes.TrimSpace(data)) == 0 {
			return fmt.Errorf("the server did not send %s, which every server of a cluster has: is it of the same version?", name)
		}
		mode := os.FileMode(0o600)
		if filepath.Ext(name) == ".crt" {
			mode = 0o644
		}
		if _, err := atomicfile.WriteIfChanged(filepath.Join(d.PKI(), name), data, mode); err != nil {
			return err
		}
	}
	return nil
}

// OwnCA is the cluster's CA that this server has, in PEM form.
func OwnCA(d paths.Dirs) ([]byte, error) { return os.ReadFile(clusterCA.certFile(d)) }

// OwnPin is CAPin of OwnCA.
func OwnPin(d paths.Dirs) (string, error) {
	data, err := OwnCA(d)
	if err != nil {
		return "", err
	}
	return CAPin(data)
}
