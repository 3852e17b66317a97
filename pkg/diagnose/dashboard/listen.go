package dashboard

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"net"
	"syscall"
	"time"
)

// Loopback opens a port on both addresses of the loopback interface, a free one if port is 0. Browsers try ::1 first for names below
// .localhost: whoever had the port there would be asked in place of this process.
func Loopback(port uint16) ([]net.Listener, error) {
	var err error
	for range 32 {
		var all []net.Listener
		if all, err = loopback(port); err == nil || port != 0 || !errors.Is(err, syscall.EADDRINUSE) {
			return all, err
		}
	}
	return nil, err
}

func loopback(port uint16) ([]net.Listener, error) {
	four, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(port)})
	if err != nil {
		return nil, taken(err, port)
	}
	got := four.Addr().(*net.TCPAddr).Port
	six, err := net.ListenTCP("tcp6", &net.TCPAddr{IP: net.IPv6loopback, Port: got})
	switch {
	case err == nil:
		return []net.Listener{four, six}, nil
	case errors.Is(err, syscall.EADDRNOTAVAIL), errors.Is(err, syscall.EAFNOSUPPORT):
		return []net.Listener{four}, nil // nobody else has ::1 either
	}
	four.Close()
	return nil, taken(err, uint16(got))
}

func taken(err error, port uint16) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("another process has port %d of the loopback interface, and would be asked in place of this one: choose another port: %w", port, err)
	}
	return fmt.Errorf("opening a port on the loopback interface: %w", err)
}

// SelfSigned makes a certificate for names and addresses, with a key that only this process has, and its fingerprint for
// people to compare.
func SelfSigned(names []string, addresses []net.IP, now time.Time) (*tls.Certificate, string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, "", err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, "", err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "coracle dashboard"}, DNSNames: names, IPAddresses: addresses,
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(0, 13, 0), // browsers refuse longer ones
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, "", err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, Fingerprint(der), nil
}

// Fingerprint is the SHA-256 of a certificate as browsers show it.
func Fingerprint(der []byte) string {
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:])
}
