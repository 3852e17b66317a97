package nodeguard

import (
	"crypto/x509"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/cluster/pki"
)

// renewable returns a request for authentication. A node that was off for longer than its certificate renews it with the expired one: for that request
// alone the certificate counts as valid, and all else about it is verified as always. The TLS handshake has proved that the client has the
// key, and package endpoint looks whether the node name is still that key's.
func renewable(r *http.Request) *http.Request {
	cert := renewal(r)
	if cert == nil || !time.Now().After(cert.NotAfter) {
		return r
	}
	valid, state := *cert, *r.TLS
	valid.NotAfter = time.Now().Add(time.Minute)
	state.PeerCertificates = append([]*x509.Certificate{&valid}, slices.Clone(r.TLS.PeerCertificates[1:])...)
	r = r.WithContext(r.Context())
	r.TLS = &state
	return r
}

// renewal returns the certificate of a node that asks for another one, nil for other requests.
func renewal(r *http.Request) *x509.Certificate {
	if r.Method != http.MethodPost || r.URL.Path != join.PathAgent || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil
	}
	if cert := r.TLS.PeerCertificates[0]; strings.HasPrefix(cert.Subject.CommonName, pki.NodeUser) {
		return cert
	}
	return nil
}

// former authenticates a node that was away while the cluster's CA was replaced, and asks for a certificate with one of the former CA. The same is true of
// it as of an expired one: it is worth as much as its key.
func (g *Guard) former(r *http.Request) (*authenticator.Response, bool) {
	cert := renewal(r)
	if cert == nil || g.Former == nil || !slices.Contains(cert.ExtKeyUsage, x509.ExtKeyUsageClientAuth) || !g.Former(cert) {
		return nil, false
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: cert.Subject.CommonName, Groups: []string{pki.NodeGroup, user.AllAuthenticated}}}, true
}
