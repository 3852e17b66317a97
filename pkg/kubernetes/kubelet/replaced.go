package kubelet

import (
	"context"
	"crypto/x509"
	"path/filepath"
	"time"

	"github.com/sirupsen/logrus"
	certutil "k8s.io/client-go/util/cert"

	"github.com/coracle-dev/coracle/pkg/core/filewatch"
)

// renewer is a manager of the kubelet's certificates, of which scripts/bundle/overlay makes one of upstream's: it can read its files again and request others.
type renewer interface {
	Renew(valid func(*x509.Certificate) bool) error
}

const (
	lookEvery = time.Minute
	// askEvery is the least time between two requests for certificates of the present authority: another one may sign for a while.
	askEvery = lookEvery / 2
)

// followReplaced has the kubelet use certificates that somebody else has written. If it can request its own, it does so when they were removed, or when the
// cluster has another authority than the one that has signed them. It also looks every minute, as the kubelet makes the manager of its serving certificate
// later than that of the client's.
func (k Kubelet) followReplaced(ctx context.Context, certificates renewer) {
	state := func() string {
		var all string
		for _, file := range []string{filepath.Join(k.PKI, currentCert), filepath.Join(k.PKI, servingCert), k.ClientCA} {
			all += filewatch.State(file) + "\n"
		}
		return all
	}
	changes, ticker := filewatch.Changes(ctx, state), time.NewTicker(lookEvery)
	defer ticker.Stop()
	for asked := (time.Time{}); ; {
		now := time.Now()
		may := now.Sub(asked) >= askEvery
		err := certificates.Renew(func(cert *x509.Certificate) bool {
			if k.signed(cert) || !may {
				return true
			}
			asked = now
			return false
		})
		if err != nil {
			logrus.WithField("component", "kubelet").WithError(err).Error("reading its certificates again: restart coracle, or request others with coracle certificate rotate --service kubelet")
		}
		select {
		case <-changes:
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// signed reports whether the cluster's present authority, which is the first one in the file, has signed a certificate. On a server, which issues the
// kubelet's certificates itself, it does not matter.
func (k Kubelet) signed(cert *x509.Certificate) bool {
	if k.BootstrapKubeconfig == "" {
		return true
	}
	authorities, err := certutil.CertsFromFile(k.ClientCA)
	return err != nil || cert.CheckSignatureFrom(authorities[0]) == nil // others report an error
}
