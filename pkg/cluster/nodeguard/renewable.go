package nodeguard

import (
	"crypto/x509"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/cluster/pki"
)

// renewable returns a request for authentication. A node that was off for longer than its certificate renews it with the expired one: for that request
// alone the certificate counts as valid, and all else about it is verified as always. The TLS handshake has proved that the client has the
// key, and package endpoint looks whether the node name is still that key's.
func renewable(r *http.Request) *http.Request {
	if r.Method != http.MethodPost || r.URL.Path != join.PathAgent || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return r
	}
	cert := r.TLS.PeerCertificates[0]
	if !strings.HasPrefix(cert.Subject.CommonName, pki.NodeUser) || !time.Now().After(cert.NotAfter) {
		return r
	}
	valid, state := *cert, *r.TLS
	valid.NotAfter = time.Now().Add(time.Minute)
	state.PeerCertificates = append([]*x509.Certificate{&valid}, slices.Clone(r.TLS.PeerCertificates[1:])...)
	r = r.WithContext(r.Context())
	r.TLS = &state
	return r
}
