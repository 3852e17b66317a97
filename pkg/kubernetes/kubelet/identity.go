package kubelet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	certutil "k8s.io/client-go/util/cert"

	"github.com/coracle-dev/coracle/pkg/core/clock"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// The kubelet's files, in its certificate directory, with the certificates and keys in use.
const (
	currentCert = "kubelet-client-current.pem"
	servingCert = "kubelet-server-current.pem"
)

// Identity is a component that is ready when the kubelet has a client certificate, for components that use the certificate.
type Identity struct {
	once sync.Once
	has  chan struct{}
}

// NewIdentity returns an Identity that is not ready.
func NewIdentity() *Identity { return &Identity{has: make(chan struct{})} }

// Run waits for the certificate, and then until ctx is done.
func (i *Identity) Run(ctx context.Context, ready func()) error {
	lifecycle.WaitingFor(ctx, "the kubelet's client certificate")
	select {
	case <-i.has:
		lifecycle.WaitingFor(ctx, "")
		ready()
		<-ctx.Done()
	case <-ctx.Done():
	}
	return nil
}

func (i *Identity) known() {
	if i != nil {
		i.once.Do(func() { close(i.has) })
	}
}

// awaitCertificate returns when there is a certificate. It polls, because upstream's manager has no notification.
func (k Kubelet) awaitCertificate(ctx context.Context, current func() *tls.Certificate) error {
	return lifecycle.Until(ctx, "its client certificate", func(context.Context) error {
		if current() == nil {
			return errors.New("the cluster has issued none yet")
		}
		return nil
	})
}

// access returns a client configuration with the first certificate: the kubelet's own, or the one with which it requests its own.
func (k Kubelet) access() (*restclient.Config, error) {
	file := k.Kubeconfig
	if k.BootstrapKubeconfig != "" {
		if err := k.removeInvalid(); err != nil {
			return nil, err
		}
		file = k.BootstrapKubeconfig
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	return config, nil
}

// removeInvalid removes a client certificate that the API server would refuse, or that belongs to another node, because the machine had
// another name or was in another cluster. The kubelet then requests a new one.
func (k Kubelet) removeInvalid() error {
	file := filepath.Join(k.PKI, currentCert)
	why := k.checkCertificate(file)
	if why == nil {
		return nil
	}
	if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("removing an invalid client certificate: %w", err)
	}
	if !os.IsNotExist(why) {
		logrus.WithField("component", "kubelet").Infof("requesting a new client certificate: %v", why)
	}
	return nil
}

// forgetCertificate removes the client certificate, whose key the API server does not know, and ends the kubelet. It does nothing if the kubelet has
// no such certificate, and so uses the identity with which certificates are requested, or if there is no such identity.
func (k Kubelet) forgetCertificate(end chan<- error) {
	if k.BootstrapKubeconfig == "" || os.Remove(filepath.Join(k.PKI, currentCert)) != nil {
		return
	}
	end <- errors.New("the API server does not know the key of its client certificate, as after a restore: it starts again and requests another one")
}

// removeEarly removes a serving certificate that is not valid yet, because the clock was set back: its signer dates it back by five minutes only.
// The kubelet then requests another one. In a year that is certainly wrong nobody could issue one that stays valid.
func (k Kubelet) removeEarly() error {
	file := filepath.Join(k.PKI, servingCert)
	pair, err := tls.LoadX509KeyPair(file, file)
	if now := time.Now(); err != nil || now.Before(clock.Floor) || !now.Before(pair.Leaf.NotBefore) {
		return nil // the kubelet looks after it
	}
	if err := os.Remove(file); err != nil {
		return fmt.Errorf("removing a serving certificate that is not valid yet: %w", err)
	}
	return nil
}

// checkCertificate returns why a certificate cannot be used, nil if it can.
func (k Kubelet) checkCertificate(file string) error {
	pair, err := tls.LoadX509KeyPair(file, file)
	if err != nil {
		return err
	}
	roots, err := certutil.NewPool(k.ClientCA)
	if err != nil {
		return err
	}
	cert := pair.Leaf
	options := x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if now := time.Now(); now.Before(cert.NotBefore) && now.Before(clock.Floor) { // the clock is wrong, and will be corrected
		options.CurrentTime = cert.NotBefore
	}
	if _, err := cert.Verify(options); err != nil {
		return err
	}
	if cert.Subject.CommonName != "system:node:"+k.Name {
		return fmt.Errorf("it is %s's", cert.Subject.CommonName)
	}
	return nil
}
