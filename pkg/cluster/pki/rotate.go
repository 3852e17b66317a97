package pki

import (
	"crypto/x509"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// Reissue issues certificates of a server and its node again that are not due yet: those with the given names. Their keys stay, so that the files of a
// pair match at every moment. It can be interrupted at any point and repeated, also while EnsureServer runs.
func Reissue(cfg config.Config, names []string) error {
	cas, err := ensureRoots(cfg.Dirs, time.Now())
	if err != nil {
		return err
	}
	for _, l := range allLeaves() {
		if !slices.Contains(names, l.Name) {
			continue
		}
		want := l.desired(cfg)
		want.Anew = true
		if _, _, err := ensureLeaf(cfg.Dirs, want, cas[l.CA], time.Now()); err != nil {
			return fmt.Errorf("making certificate %s: %w", l.Name, err)
		}
	}
	_, err = EnsureServer(cfg) // the kubeconfigs
	return err
}

// ForgetKubelet removes the kubelet's certificates on an agent, so that it requests others at its next start. It can be repeated.
func ForgetKubelet(d paths.Dirs) error {
	for _, l := range nodeLeaves {
		if !l.Rotated {
			continue
		}
		if err := os.Remove(l.certFile(d)); err != nil && !missing(err) {
			return fmt.Errorf("removing the kubelet's certificate: %w", err)
		}
	}
	return nil
}

// reloaded is how long after a change of the authorities all API servers certainly know the new one when they call kubelets: client-go looks at the
// file every five minutes.
const reloaded = 6 * time.Minute

// ReplaceKubelet is ForgetKubelet if a former authority has signed one of the kubelet's certificates, and that one is not accepted any more, or the present
// one has been known for long enough.
func ReplaceKubelet(d paths.Dirs, now time.Time) error {
	cas, errCA := readCerts(nodeCA(d))
	info, errInfo := os.Stat(nodeCA(d))
	if errCA != nil || errInfo != nil {
		return nil // others report them
	}
	for _, l := range nodeLeaves {
		cert, err := readCert(l.certFile(d))
		if !l.Rotated || err != nil {
			continue
		}
		signer := slices.IndexFunc(cas, func(ca *x509.Certificate) bool { return cert.CheckSignatureFrom(ca) == nil })
		if signer < 0 || signer > 0 && now.Sub(info.ModTime()) >= reloaded {
			return ForgetKubelet(d)
		}
	}
	return nil
}
