package pki

import (
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

// ForgetKubelet removes the kubelet's certificates on an agent, so that it requests others. It can be repeated.
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

// ReplaceKubelet is ForgetKubelet if another authority than the present one has signed one of the kubelet's certificates.
func ReplaceKubelet(d paths.Dirs) error {
	cas, err := readCerts(nodeCA(d))
	if err != nil {
		return nil // others report it
	}
	for _, l := range nodeLeaves {
		cert, err := readCert(l.certFile(d))
		if l.Rotated && err == nil && cert.CheckSignatureFrom(cas[0]) != nil {
			return ForgetKubelet(d)
		}
	}
	return nil
}
