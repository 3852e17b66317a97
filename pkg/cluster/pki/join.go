package pki

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
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

// NodeFiles returns the paths of the certificate and the key with which coracle's parts of a node call the API.
func NodeFiles(d paths.Dirs) (certFile, keyFile string) { return leafNamed("node").files(d) }

// ServerFiles returns the paths of the certificate and the key with which coracle's parts of the control plane call the API.
func ServerFiles(d paths.Dirs) (certFile, keyFile string) { return leafNamed("coracle").files(d) }

// NodeRequest returns a request for the node's client certificate: PKCS #10 in PEM form. It makes the node's key if
// there is none; from then on the key is the machine's identity.
func NodeRequest(d paths.Dirs, node string) ([]byte, error) {
	l := leafNamed("node")
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
		return nil, fmt.Errorf("making a request for the node's certificate: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: blockRequest, Bytes: der}), nil
}

// CheckNodeRequest validates a request of NodeRequest for the named node and returns the fingerprint of its key. The error is a message for the
// machine that sent the request.
func CheckNodeRequest(csr []byte, node string) (identity string, err error) {
	r, err := checkNodeRequest(csr, node)
	if err != nil {
		return "", err
	}
	return RequestFingerprint(r), nil
}

func checkNodeRequest(csr []byte, node string) (*x509.CertificateRequest, error) {
	r, err := ParseRequest(csr)
	if err != nil {
		return nil, err
	}
	l := leafNamed("node")
	if want := l.commonName(node); r.Subject.CommonName != want || !slices.Equal(r.Subject.Organization, []string{l.Group}) {
		return nil, fmt.Errorf("the certificate request is for %q, not for %q of %s", r.Subject.String(), want, l.Group)
	}
	if len(r.DNSNames)+len(r.IPAddresses)+len(r.EmailAddresses)+len(r.URIs) > 0 {
		return nil, errors.New("the certificate request has alternative names, and a node's client certificate has none")
	}
	return r, nil
}

// mostBits is the length of the longest RSA key of a certificate request, as in crypto/tls. Checking a signature of a key of megabytes takes minutes.
const mostBits = 8192

// ParseRequest parses a PKCS #10 request in PEM form and checks its signature. The error is a message for the machine that sent the request.
func ParseRequest(csr []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(csr)
	if block == nil || block.Type != blockRequest {
		return nil, errors.New("the certificate request is not in PEM form")
	}
	r, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("the certificate request is damaged: %w", err)
	}
	if key, ok := r.PublicKey.(*rsa.PublicKey); ok && key.N.BitLen() > mostBits {
		return nil, fmt.Errorf("the certificate request has a key of %d bits; at most %d are possible", key.N.BitLen(), mostBits)
	}
	if err := r.CheckSignature(); err != nil {
		return nil, fmt.Errorf("the certificate request is not signed with its key: %w", err)
	}
	return r, nil
}

// SignNode signs a request of NodeRequest for the named node with the cluster's CA and returns the certificate in PEM form. life is how long it is
// valid; 0 is the default.
func SignNode(d paths.Dirs, csr []byte, node string, life time.Duration) ([]byte, error) {
	r, err := checkNodeRequest(csr, node)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	ca, err := ensureAuthority(d, clusterCA, now)
	if err != nil {
		return nil, err
	}
	l := leafNamed("node")
	cert, err := signPublic(leafTemplate(desired{leaf: l, CN: l.commonName(node), Life: life}, now), r.PublicKey, ca)
	if err != nil {
		return nil, err
	}
	return append(encodeCert(cert), crossOf(d, clusterCA)...), nil
}

// Identity is the fingerprint of the node's key on this machine, as CheckNodeRequest returns it; "" if it has none.
func Identity(d paths.Dirs) (string, error) { return keyIdentity(d, "node") }

// KubeletIdentity is the fingerprint of the kubelet's first key on a server; "" on an agent.
func KubeletIdentity(d paths.Dirs) (string, error) { return keyIdentity(d, "kubelet-client") }

func keyIdentity(d paths.Dirs, leaf string) (string, error) {
	key, err := readKey(leafNamed(leaf).keyFile(d))
	if missing(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading the key of %s: %w", leaf, err)
	}
	return keyFingerprint(key)
}

// keyFingerprint is Fingerprint of a certificate for a key.
func keyFingerprint(key crypto.Signer) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return "", fmt.Errorf("encoding a public key: %w", err)
	}
	return fingerprint(der), nil
}

// CAPin is the fingerprint of the key of a cluster's CA certificate in PEM form; of the first certificate in a chain.
func CAPin(ca []byte) (string, error) {
	cert, err := parseCert(ca)
	if err != nil {
		return "", fmt.Errorf("reading the cluster's CA certificate: %w", err)
	}
	return Fingerprint(cert), nil
}

// Fingerprint is the SHA-256 of a certificate's public key (SubjectPublicKeyInfo) in hexadecimal.
func Fingerprint(cert *x509.Certificate) string { return fingerprint(cert.RawSubjectPublicKeyInfo) }

// RequestFingerprint is Fingerprint of the certificate that a request is for.
func RequestFingerprint(r *x509.CertificateRequest) string {
	return fingerprint(r.RawSubjectPublicKeyInfo)
}

func fingerprint(publicKeyInfo []byte) string {
	sum := sha256.Sum256(publicKeyInfo)
	return hex.EncodeToString(sum[:])
}

// AcceptNode stores a cluster's answer to NodeRequest: its CA and the node's certificate. They are on disk when it
// returns.
func AcceptNode(cfg config.Config, ca, cert []byte) error {
	l := leafNamed("node")
	key, err := readKey(l.keyFile(cfg.Dirs))
	if err != nil {
		return err
	}
	got, err := parseCert(cert)
	if err != nil {
		return fmt.Errorf("reading the certificate in the server's answer: %w", err)
	}
	signer, err := parseCert(ca)
	if err != nil {
		return fmt.Errorf("reading the CA in the server's answer: %w", err)
	}
	w := l.desired(cfg)
	if err := w.mismatch(got, key, &pair{Cert: signer}, got.NotBefore); err != nil {
		return fmt.Errorf("the server answered with a certificate that this node cannot use: %w", err)
	}
	if _, err := atomicfile.WriteIfChanged(nodeCA(cfg.Dirs), ca, 0o644); err != nil {
		return err
	}
	_, err = atomicfile.WriteIfChanged(l.certFile(cfg.Dirs), cert, 0o644)
	return err
}

// EnsureAgent writes the kubeconfigs of an agent that has joined. It removes certificates of its kubelet that are not the cluster's any more.
func EnsureAgent(cfg config.Config) error {
	if err := ReplaceKubelet(cfg.Dirs); err != nil {
		return err
	}
	return writeKubeconfigs(cfg, nodeKubeconfigs, nodeCA(cfg.Dirs), balancer(cfg))
}

// NodeCert checks the node's certificate: it must be for this node name and signed by the known CA. due is the time from which it is renewed,
// expires the end of its validity. The error is fs.ErrNotExist if the node has not joined.
func NodeCert(cfg config.Config) (due, expires time.Time, err error) {
	l := leafNamed("node")
	key, err := readKey(l.keyFile(cfg.Dirs))
	if err != nil {
		return due, expires, err
	}
	cert, err := readCert(l.certFile(cfg.Dirs))
	if err != nil {
		return due, expires, err
	}
	cas, err := readCerts(nodeCA(cfg.Dirs))
	if err != nil {
		return due, expires, err
	}
	// The validity period is checked by the caller: a machine without a clock is in the year 1970 until it has a network.
	for i, ca := range cas {
		if err = l.desired(cfg).mismatch(cert, key, &pair{Cert: ca}, cert.NotBefore); err != nil {
			continue
		}
		if i > 0 { // a former authority's
			return cert.NotBefore, cert.NotAfter, nil
		}
		return renewAt(cert), cert.NotAfter, nil
	}
	return due, expires, fmt.Errorf("%s: %w", l.certFile(cfg.Dirs), err)
}

// KeyFiles are the cluster's own keys and authorities, which all its servers have: names below the PKI directory.
func KeyFiles() []string {
	files := []string{accountKey}
	for _, a := range authorities {
		files = append(files, a.Name+".key", a.Name+".crt")
	}
	return files
}

// ReadKeys returns the content of KeyFiles by name, for a server that joins.
func ReadKeys(d paths.Dirs) (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, name := range KeyFiles() {
		data, err := os.ReadFile(filepath.Join(d.PKI(), name))
		if err != nil {
			return nil, fmt.Errorf("reading the cluster's keys: %w", err)
		}
		out[name] = data
	}
	for _, name := range crossFiles() {
		data, err := os.ReadFile(filepath.Join(d.PKI(), name))
		switch {
		case err == nil:
			out[name] = data
		case !missing(err):
			return nil, fmt.Errorf("reading the cluster's keys: %w", err)
		}
	}
	return out, nil
}

// WriteKeys stores what ReadKeys returned on another server. The files are on disk when it returns. It can be interrupted at any point and
// repeated. The statements of former authorities come first: whatever a new one signs has them, and behind what a former one signs they do no harm.
func WriteKeys(d paths.Dirs, files map[string][]byte) error {
	names := slices.DeleteFunc(crossFiles(), func(name string) bool { return files[name] == nil })
	for _, name := range append(names, KeyFiles()...) {
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

// OwnCA is this server's copy of the cluster's CA certificate, in PEM form.
func OwnCA(d paths.Dirs) ([]byte, error) { return os.ReadFile(clusterCA.certFile(d)) }

// OwnPin is CAPin of OwnCA.
func OwnPin(d paths.Dirs) (string, error) {
	data, err := OwnCA(d)
	if err != nil {
		return "", err
	}
	return CAPin(data)
}
