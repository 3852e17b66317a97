package pki

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/clock"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// desired is a leaf of the table with the names and addresses of one configuration.
type desired struct {
	leaf
	CN   string
	SANs sans
	Life time.Duration // 0 means leafLife
	Anew bool          // issue it even if it is not due
}

func (l leaf) desired(cfg config.Config) desired {
	w := desired{leaf: l, CN: l.commonName(cfg.Node.Name), Life: cfg.CertificateLife}
	if l.SANs != nil {
		w.SANs = l.SANs(cfg)
	}
	return w
}

// ensureLeaf issues a certificate unless there is one that fits the configuration and is not due for renewal. It returns the certificate and
// whether it was issued now.
//
// A re-issued certificate keeps its key, so that the two files of a pair always match. Leaves are not synced to disk: one that a power loss
// damages is issued again.
func ensureLeaf(d paths.Dirs, want desired, ca *pair, now time.Time) (cert *x509.Certificate, issued bool, err error) {
	key, err := readKey(want.keyFile(d))
	if err != nil && !absent(err) {
		return nil, false, err
	}
	if err == nil {
		cert, err = readCert(want.certFile(d))
		if err == nil && !want.Anew && want.mismatch(cert, key, ca, now) == nil && want.chained(d) {
			return cert, false, nil
		}
		if err != nil && !absent(err) {
			return nil, false, err
		}
	} else if key, err = want.makeKey(d); err != nil {
		return nil, false, err
	}
	if cert, err = sign(leafTemplate(want, now), key, ca); err != nil {
		return nil, false, err
	}
	if want.Rotated {
		return cert, true, storeRotated(d, want.leaf, append(encodeCert(cert), want.chain(d)...), key, now)
	}
	return cert, true, storePair(d, want.leaf, key, append(encodeCert(cert), want.chain(d)...))
}

// makeKey makes a key. One that identifies its owner is on disk when makeKey returns.
func (l leaf) makeKey(d paths.Dirs) (crypto.Signer, error) {
	key, err := newKey()
	if err != nil || !l.Identity {
		return key, err
	}
	return key, writeKey(l.keyFile(d), key)
}

// chain returns the certificates that follow the leaf's in its file: statements of former authorities, for those who do not know the present one yet, and,
// for those who know no more than an authority's hash, the authorities themselves: first the former ones, which nobody accepts any more, and then those that are.
func (l leaf) chain(d paths.Dirs) []byte {
	cross := crossOf(d, l.CA)
	if !l.Chain {
		return cross
	}
	data, err := os.ReadFile(l.CA.certFile(d))
	if err != nil {
		return cross // ensureAuthority, which has just read it, reports errors
	}
	return slices.Concat(cross, formerOf(d, l.CA, data), data)
}

// chained reports whether the file has the chain. One that the kubelet requested has none.
func (l leaf) chained(d paths.Dirs) bool {
	data, err := os.ReadFile(l.certFile(d))
	return err == nil && (l.Rotated || bytes.HasSuffix(data, l.chain(d)))
}

// mismatch returns the reason why an existing certificate must be issued again, or nil.
func (want desired) mismatch(cert *x509.Certificate, key crypto.Signer, ca *pair, now time.Time) error {
	switch {
	case !samePublic(cert, key):
		return errors.New("key and certificate do not match")
	case cert.CheckSignatureFrom(ca.Cert) != nil:
		return errors.New("another authority signed it")
	case cert.Subject.CommonName != want.CN:
		return fmt.Errorf("it is for %q", cert.Subject.CommonName)
	case !slices.Equal(cert.Subject.Organization, want.groups()):
		return fmt.Errorf("it is for the groups %q", cert.Subject.Organization)
	case !slices.Equal(cert.ExtKeyUsage, want.Usage):
		return errors.New("it is for another usage")
	case !want.covers(cert):
		return errors.New("it is for other names or addresses")
	case want.tooLong(cert):
		return errors.New("it is valid for longer than certificates are to live")
	case now.Before(cert.NotBefore):
		return errors.New("it is not valid yet")
	case !now.Before(want.deadline(cert)):
		return errors.New("it expires")
	}
	return nil
}

// tooLong reports whether a certificate of before a setting lives longer than the setting permits; see validity.
func (want desired) tooLong(cert *x509.Certificate) bool {
	if want.Life == 0 || want.Rotated {
		return false
	}
	from := cert.NotBefore.Add(min(backdate, want.Life))
	if from.Before(clock.Floor) {
		from = clock.Floor
	}
	return cert.NotAfter.Sub(from) > want.Life
}

func (want desired) groups() []string {
	if want.Group == "" {
		return nil
	}
	return []string{want.Group}
}

// covers reports whether the certificate has the desired names and addresses. One that the kubelet requested may have more: all addresses of
// its Node.
func (want desired) covers(cert *x509.Certificate) bool {
	have := certSANs(cert)
	if !want.Rotated {
		return slices.Equal(have.DNS, want.SANs.DNS) && slices.Equal(have.IPs, want.SANs.IPs)
	}
	for _, name := range want.SANs.DNS {
		if !slices.Contains(have.DNS, name) {
			return false
		}
	}
	return !slices.ContainsFunc(want.SANs.IPs, func(ip netip.Addr) bool { return !slices.Contains(have.IPs, ip) })
}

// deadline is when the certificate is issued again. The kubelet renews its own certificates between
// 70 % and 90 % of their validity; they are issued again here only if it has not.
func (l leaf) deadline(cert *x509.Certificate) time.Time {
	if l.Rotated {
		return cert.NotAfter.Add(-cert.NotAfter.Sub(cert.NotBefore) / 20)
	}
	return renewAt(cert)
}

func certSANs(cert *x509.Certificate) sans {
	var s sans
	s.add(cert.DNSNames...)
	for _, ip := range cert.IPAddresses {
		if addr, ok := netip.AddrFromSlice(ip); ok {
			s.addIPs(addr)
		}
	}
	return s.sorted()
}

func storePair(d paths.Dirs, l leaf, key crypto.Signer, certs []byte) error {
	data, err := encodeKey(key)
	if err != nil {
		return err
	}
	if err := writeIfChanged(l.keyFile(d), data, 0o600); err != nil {
		return err
	}
	return atomicfile.WriteVolatile(l.certFile(d), certs, 0o644)
}

// storeRotated writes a pair in the layout of the kubelet's certificate store, NAME-TIME.pem and a symbolic link
// NAME-current.pem to it, so that the kubelet's own rotation takes over from there.
func storeRotated(d paths.Dirs, l leaf, certs []byte, key crypto.Signer, now time.Time) error {
	keyData, err := encodeKey(key)
	if err != nil {
		return err
	}
	current := l.certFile(d)
	file := filepath.Join(filepath.Dir(current), l.Name+"-"+now.Format("2006-01-02-15-04-05")+".pem")
	if err := atomicfile.WriteVolatile(file, append(certs, keyData...), 0o600); err != nil {
		return err
	}
	// The kubelet's name for the next link, which the kubelet removes after a crash in between.
	next := filepath.Join(filepath.Dir(current), l.Name+"-updated.pem")
	if err := os.Remove(next); err != nil && !missing(err) {
		return fmt.Errorf("replacing %s: %w", current, err)
	}
	if err := os.Symlink(file, next); err != nil {
		return fmt.Errorf("replacing %s: %w", current, err)
	}
	if err := os.Rename(next, current); err != nil {
		return fmt.Errorf("replacing %s: %w", current, err)
	}
	return nil
}
