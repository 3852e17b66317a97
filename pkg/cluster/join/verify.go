package join

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"slices"
	"sync/atomic"
)

// apiserverCN is the common name of every server's certificate. Nobody else of a cluster has it: the kubelets'
// certificates, which the same CA signs, name their nodes.
const apiserverCN = "kube-apiserver"

// distrustError says why a server is not believed to be one of the cluster's.
type distrustError struct{ text string }

func (e *distrustError) Error() string { return e.text }

// witness looks at a server's certificates. The time does not matter to it: a wrong clock is told of as such.
type witness struct {
	client Client
	leaf   atomic.Pointer[x509.Certificate] // once it is believed
}

func (w *witness) verify(state tls.ConnectionState) error {
	leaf := state.PeerCertificates[0]
	if leaf.Subject.CommonName != apiserverCN || !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageServerAuth) {
		return &distrustError{fmt.Sprintf("what answers at %s is not a coracle server, its certificate is for %q: correct --server",
			w.client.Server, leaf.Subject.CommonName)}
	}
	if cas := certificates(w.client.CA); len(cas) > 0 {
		if !signedByOne(leaf, cas) {
			return &distrustError{fmt.Sprintf("%s is a server of another cluster than the one that this machine has joined: correct --server; "+
				"or, if that cluster is gone, forget it with coracle reset and join again", w.client.Server)}
		}
	} else if err := w.verifyPin(leaf, state.PeerCertificates[1:]); err != nil {
		return err
	}
	w.leaf.Store(leaf)
	return nil
}

// verifyPin looks for the CA that the token names among the certificates that the server sent behind its own.
func (w *witness) verifyPin(leaf *x509.Certificate, chain []*x509.Certificate) error {
	pin := w.client.Token.Pin
	switch {
	case w.client.Token.ID == "":
		return &distrustError{fmt.Sprintf("nothing is known by which %s could be believed to be the cluster's", w.client.Server)}
	case pin == "":
		return nil // a plain token: who gave it has been told
	}
	for _, ca := range chain {
		if hash(ca) == pin && signedByOne(leaf, []*x509.Certificate{ca}) {
			return nil
		}
	}
	theirs := "unknown"
	if len(chain) > 0 {
		theirs = hash(chain[0])
	}
	return &distrustError{fmt.Sprintf("%s is a server of another cluster than the token is for: the hash of its CA is %s, and the token says %s; "+
		"correct --server, or make a token on a server of this cluster with coracle token create", w.client.Server, theirs, pin)}
}

// confirm holds what a server says is its cluster's CA against what was seen of it.
func (w *witness) confirm(ca []byte, t Token) error {
	cas := certificates(ca)
	switch {
	case len(cas) == 0:
		return fmt.Errorf("%s answers without its cluster's CA", w.client.Server)
	case !signedByOne(w.leaf.Load(), cas):
		return fmt.Errorf("%s answers with a CA that is not its own", w.client.Server)
	case t.Pin != "" && !slices.ContainsFunc(cas, func(c *x509.Certificate) bool { return hash(c) == t.Pin }):
		return fmt.Errorf("%s answers with another CA than the token names", w.client.Server)
	}
	return nil
}

// signedByOne reports whether one of the authorities signed the certificate, whatever the time is.
func signedByOne(cert *x509.Certificate, cas []*x509.Certificate) bool {
	return slices.ContainsFunc(cas, func(ca *x509.Certificate) bool { return ca.IsCA && cert.CheckSignatureFrom(ca) == nil })
}

func hash(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	return hex.EncodeToString(sum[:])
}

// ders are the certificates in PEM data as they are encoded.
func ders(data []byte) (out [][]byte) {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			out = append(out, block.Bytes)
		}
	}
	return out
}

// SameCluster reports whether a token is for the cluster with the CA. A token without a pin is for any.
func SameCluster(t Token, ca []byte) bool {
	return t.Pin == "" || slices.ContainsFunc(certificates(ca), func(c *x509.Certificate) bool { return hash(c) == t.Pin })
}
