package join

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/coracle-dev/coracle/pkg/cluster/pki"
)

// apiserverCN is the common name of every server's certificate. No other certificate of the CA has it; those of kubelets name their
// nodes.
const apiserverCN = "kube-apiserver"

// untrustedError says why the server's certificate was rejected.
type untrustedError struct{ text string }

func (e *untrustedError) Error() string { return e.text }

// verifier verifies a server's certificates. It ignores the validity period, because a wrong clock is reported by checkClock.
type verifier struct {
	client Client
	chain  []*x509.Certificate              // that the server sent with it
	leaf   atomic.Pointer[x509.Certificate] // set once it is verified
}

func (w *verifier) verify(state tls.ConnectionState) error {
	leaf := state.PeerCertificates[0]
	if leaf.Subject.CommonName != apiserverCN || !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageServerAuth) {
		return &untrustedError{fmt.Sprintf("%s is not a coracle server, because its certificate is for %q: correct --server",
			w.client.Server, leaf.Subject.CommonName)}
	}
	w.chain = state.PeerCertificates[1:]
	if cas := pki.ParseCerts(w.client.CA); len(cas) > 0 {
		if !pki.SignedBy(leaf, pki.Successors(cas, w.chain)) {
			return &untrustedError{fmt.Sprintf("%s is a server of another cluster than the one that this machine has joined: correct --server; "+
				"or, if that cluster is gone, forget it with coracle reset and join again", w.client.Server)}
		}
	} else if err := w.verifyPin(leaf, state.PeerCertificates[1:]); err != nil {
		return err
	}
	w.leaf.Store(leaf)
	return nil
}

// verifyPin looks for the pinned CA in the chain that the server sent, and checks that this CA signed the server's certificate.
func (w *verifier) verifyPin(leaf *x509.Certificate, chain []*x509.Certificate) error {
	pin := w.client.Token.Pin
	switch {
	case w.client.Token.ID == "":
		return &untrustedError{fmt.Sprintf("%s cannot be verified: neither a token nor the cluster's CA is known", w.client.Server)}
	case pin == "":
		return nil // a plain token; the log warns of it
	}
	if pki.SignedBy(leaf, pki.Successors(pinned(chain, pin), chain)) {
		return nil
	}
	theirs := "unknown"
	for _, one := range chain { // the last of those that may have signed, as statements stand before authorities
		if pki.SignedBy(leaf, []*x509.Certificate{one}) {
			theirs = pki.Fingerprint(one)
		}
	}
	return &untrustedError{fmt.Sprintf("%s is a server of another cluster than the token is for: the hash of its CA is %s, and the token says %s; "+
		"correct --server, or make a token on a server of this cluster with coracle token create", w.client.Server, theirs, pin)}
}

// confirm checks that the CA in a response signed the server's certificate and matches the token's pin.
func (w *verifier) confirm(ca []byte, t Token) error {
	cas := pki.ParseCerts(ca)
	switch {
	case len(cas) == 0:
		return fmt.Errorf("%s answers without its cluster's CA", w.client.Server)
	case !pki.SignedBy(w.leaf.Load(), cas):
		return fmt.Errorf("%s answers with a CA that is not its own", w.client.Server)
	case t.Pin != "" && len(pinned(cas, t.Pin)) == 0 && !pki.Vouched(ca, w.chain, pinned(w.chain, t.Pin)):
		return fmt.Errorf("%s answers with another CA than the token names", w.client.Server)
	}
	return nil
}

// adopt returns the CA bundle of a verified server's answer if its first authority is a known one, or a known one has signed for it, and the known
// bundle otherwise. So a machine follows when its cluster changes its authority, and no other one.
func (w *verifier) adopt(offered []byte) []byte {
	if len(w.client.CA) > 0 && !pki.Vouched(offered, w.chain, pki.ParseCerts(w.client.CA)) {
		return w.client.CA
	}
	return offered
}

// pinned returns the certificates with a pin.
func pinned(all []*x509.Certificate, pin string) []*x509.Certificate {
	return slices.DeleteFunc(slices.Clone(all), func(c *x509.Certificate) bool { return pki.Fingerprint(c) != pin })
}
