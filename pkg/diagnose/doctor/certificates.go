package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/diagnose/check"
)

func (d *Doctor) certificates(context.Context) []check.Verdict {
	now := time.Now()
	all := pki.Expiries(d.Config.Dirs)
	if len(all) == 0 {
		return check.Skipf("there are none yet in %s", d.Config.Dirs.NodePKI())
	}
	var out []check.Verdict
	var next time.Time
	for _, e := range all {
		if next.IsZero() || e.NotAfter.Before(next) {
			next = e.NotAfter
		}
		found := judgeExpiry(e, d.Config.Role, now)
		if found == nil {
			found = d.judgePair(e, now)
		}
		out = append(out, found...)
	}
	return check.Else(out, check.Okf("%d, with their keys; the first one expires on %s and is renewed before", len(all), next.Format(time.DateOnly)))
}

// renews returns how to replace a certificate that is not valid.
func renews(e pki.Expiry, role config.Role) string {
	switch {
	case e.RenewAt.IsZero():
		return "check the clock; if it is right, run on a server: coracle certificate rotate-ca; see docs/certificates.md"
	case role == config.Agent:
		return "restart coracle, which renews it at a server: systemctl restart coracle-agent; if its log says that the cluster does not know the machine, join again with a token"
	}
	return "restart coracle, which makes a new one: systemctl restart coracle"
}

// judgeExpiry judges the validity of a certificate.
func judgeExpiry(e pki.Expiry, role config.Role, now time.Time) []check.Verdict {
	const soon, late = 90 * 24 * time.Hour, 3 * 24 * time.Hour
	fix := renews(e, role)
	switch {
	case e.Error != "":
		return check.Failf("restart coracle, which makes new ones where it can", "certificate %s cannot be read: %s", e.Name, e.Error)
	case now.After(e.NotAfter):
		return check.Failf(fix, "certificate %s has expired on %s (%s)", e.Name, e.NotAfter.Format(time.DateTime), e.File)
	case e.RenewAt.IsZero() && now.Add(soon).After(e.NotAfter):
		return check.Warnf(fix, "authority %s expires on %s", e.Name, e.NotAfter.Format(time.DateOnly))
	case !e.RenewAt.IsZero() && now.After(e.RenewAt.Add(late)):
		return check.Warnf(fix, "certificate %s should have been renewed on %s, and expires on %s",
			e.Name, e.RenewAt.Format(time.DateOnly), e.NotAfter.Format(time.DateOnly))
	}
	return nil
}

// judgePair checks that a certificate and its key belong together, and that its authority has signed it.
func (d *Doctor) judgePair(e pki.Expiry, now time.Time) []check.Verdict {
	if e.RenewAt.IsZero() {
		return nil // an authority, whose key may be on another server
	}
	fix := renews(e, d.Config.Role)
	key := strings.TrimSuffix(e.File, ".crt") + ".key"
	if strings.HasSuffix(e.File, ".pem") {
		key = e.File
	}
	pair, err := tls.LoadX509KeyPair(e.File, key)
	if err != nil {
		return check.Failf(fix, "certificate %s and its key %s do not belong together or cannot be read: %v", e.Name, key, err)
	}
	authority := d.authorityOf(e.File)
	roots, err := pool(authority)
	if err != nil {
		return check.Failf("restore it from another server", "the authority of certificate %s cannot be read: %v", e.Name, err)
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return check.Failf(fix, "certificate %s is damaged: %v", e.Name, err)
	}
	if now.Before(leaf.NotBefore) {
		return check.Failf("set the clock", "certificate %s is valid from %s on, and the clock of this machine says %s", e.Name, leaf.NotBefore.Format(time.DateTime), now.Format(time.DateTime))
	}
	_, err = leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	if err != nil {
		return check.Failf(fix, "certificate %s is not signed by the cluster's authority in %s: %v", e.Name, authority, err)
	}
	return nil
}

// authorityOf returns the file with the authority of a certificate.
func (d *Doctor) authorityOf(file string) string {
	server := d.Config.Dirs.PKI()
	switch {
	case filepath.Dir(file) == filepath.Join(server, "etcd"):
		return filepath.Join(server, "etcd", "ca.crt")
	case strings.HasPrefix(filepath.Base(file), "front-proxy-client"):
		return filepath.Join(server, "front-proxy-ca.crt")
	}
	return d.Config.Dirs.NodeCA()
}

// pool reads the certificates of authorities.
func pool(file string) (*x509.CertPool, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(data) {
		return nil, errors.New(file + " holds no certificate")
	}
	return roots, nil
}
