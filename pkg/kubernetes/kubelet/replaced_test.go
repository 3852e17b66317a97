package kubelet

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/clock"
)

// looks is a manager of certificates that counts how often it is told to look, and what it was told of the first serving certificate.
type looks struct {
	n      int
	signed bool
	first  *x509.Certificate
}

func (l *looks) Renew(valid func(*x509.Certificate) bool) error {
	l.n++
	l.signed = valid(l.first)
	return nil
}

// TestFollowReplaced: the kubelet looks at its certificates when one of them, or the authority, is replaced or removed, and every minute. What another
// authority has signed is valid on a server only, or for half a minute after another one was requested.
func TestFollowReplaced(t *testing.T) {
	for name, c := range map[string]struct {
		change    func(t *testing.T, k Kubelet)
		bootstrap string
		looks     int
		signed    bool
	}{
		"nothing":   {func(*testing.T, Kubelet) {}, "node.kubeconfig", 1, true},
		"removed":   {func(_ *testing.T, k Kubelet) { _ = os.Remove(filepath.Join(k.PKI, servingCert)) }, "node.kubeconfig", 2, true},
		"authority": {func(t *testing.T, k Kubelet) { writeCertificates(t, k, time.Now()) }, "node.kubeconfig", 2, false},
		"authority twice": {func(t *testing.T, k Kubelet) {
			writeCertificates(t, k, time.Now())
			time.Sleep(5 * time.Second)
			writeCertificates(t, k, time.Now())
		}, "node.kubeconfig", 3, true},
		"a minute later": {func(t *testing.T, k Kubelet) {
			writeCertificates(t, k, time.Now())
			time.Sleep(5 * time.Second)
			writeCertificates(t, k, time.Now())
			time.Sleep(lookEvery)
		}, "node.kubeconfig", 4, false},
		"authority on a server": {func(t *testing.T, k Kubelet) { writeCertificates(t, k, time.Now()) }, "", 2, true},
		"no authority":          {func(_ *testing.T, k Kubelet) { _ = os.Remove(k.ClientCA) }, "node.kubeconfig", 2, true},
	} {
		t.Run(name, func(t *testing.T) {
			k := Kubelet{Name: "boat", PKI: t.TempDir(), BootstrapKubeconfig: c.bootstrap}
			k.ClientCA = filepath.Join(k.PKI, "ca.crt")
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(clock.Floor.Add(100 * 24 * time.Hour)))
				writeCertificates(t, k, time.Now())
				pair, err := tls.LoadX509KeyPair(filepath.Join(k.PKI, servingCert), filepath.Join(k.PKI, servingCert))
				if err != nil {
					t.Fatal(err)
				}
				l := &looks{first: pair.Leaf}
				go k.followReplaced(t.Context(), l)
				synctest.Wait()
				c.change(t, k)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if l.n != c.looks || l.signed != c.signed {
					t.Errorf("%d looks, signed: %v", l.n, l.signed)
				}
			})
		})
	}
}
