package pki

import (
	"fmt"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// Expiry is the validity of one certificate of this machine.
type Expiry struct {
	Name      string    `json:"name"`
	File      string    `json:"file"`
	Subject   string    `json:"subject"` // the common name
	Issuer    string    `json:"issuer"`  // the signer's common name
	NotBefore time.Time `json:"notBefore"`
	NotAfter  time.Time `json:"notAfter"`
	// RenewAt is when coracle or the kubelet begins to renew it, and RenewBy when that must be done; zero for authorities, which are never renewed automatically.
	RenewAt time.Time `json:"renewAt,omitzero"`
	RenewBy time.Time `json:"renewBy,omitzero"`
	// Error says why an existing certificate cannot be read.
	Error string `json:"error,omitempty"`
}

// renewalGrace is how long after its time a certificate may be renewed: what runs looks once a day.
const renewalGrace = 24 * time.Hour

// Expiries lists the certificates of this machine in the order of the table. Those that do not exist, such as the
// control plane's on an agent, are left out.
func Expiries(d paths.Dirs) []Expiry {
	var all []Expiry
	add := func(name, file string, l *leaf) {
		cert, err := readCert(file)
		switch {
		case missing(err):
		case err != nil:
			all = append(all, Expiry{Name: name, File: file, Error: err.Error()})
		default:
			e := Expiry{Name: name, File: file, Subject: cert.Subject.CommonName, Issuer: cert.Issuer.CommonName, NotBefore: cert.NotBefore, NotAfter: cert.NotAfter}
			if l != nil {
				e.RenewAt = renewAt(cert)
				e.RenewBy = e.RenewAt.Add(min(renewalGrace, cert.NotAfter.Sub(e.RenewAt)*4/5))
				if l.Rotated {
					e.RenewBy = l.deadline(cert)
				}
			}
			all = append(all, e)
		}
	}
	for _, a := range authorities {
		add(a.Name, a.certFile(d), nil)
	}
	for _, l := range allLeaves() {
		add(l.Name, l.certFile(d), &l)
	}
	return all
}

// ServesAs returns an error with the fix if the API's certificate exists and is not valid for a name or address.
func ServesAs(d paths.Dirs, host string) error {
	cert, err := readCert(leafNamed("apiserver").certFile(d))
	if err != nil {
		return nil // this machine is no server, or the user may not read the file
	}
	if cert.VerifyHostname(host) != nil {
		return fmt.Errorf("the API's certificate is not valid for %s; start the server with --tls-san %s", host, host)
	}
	return nil
}

// Leaf returns a certificate of this machine by its name in the table, in DER form.
func Leaf(d paths.Dirs, name string) ([]byte, error) {
	cert, err := readCert(leafNamed(name).certFile(d))
	if err != nil {
		return nil, err
	}
	return cert.Raw, nil
}
