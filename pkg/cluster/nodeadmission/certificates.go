package nodeadmission

import (
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kubernetes/pkg/apis/certificates"

	"github.com/coracle-dev/coracle/pkg/cluster/pki"
)

// chain has the serving certificate of a kubelet followed by the former authorities' statements for the one that signs, when it is issued: API servers take up
// to five minutes to learn of a new authority (caRefreshDuration in client-go's transport/ca_rotation.go, to which upstream's signer gives no chain).
func (p *Plugin) chain(a admission.Attributes) {
	is, ok := a.GetObject().(*certificates.CertificateSigningRequest)
	if !ok || a.GetSubresource() != "status" || is.Spec.SignerName != certificatesv1.KubeletServingSignerName || len(is.Status.Certificate) == 0 {
		return
	}
	if was, ok := a.GetOldObject().(*certificates.CertificateSigningRequest); ok && len(was.Status.Certificate) == 0 {
		is.Status.Certificate = append(is.Status.Certificate, pki.Statements(p.dirs)...)
	}
}

// mostRequest is how many bytes a request for a certificate may have, that of an RSA key of 16384 bits included.
const mostRequest = 16 << 10

// checkRequest refuses a request for a certificate that is too large: upstream checks its signature, which takes minutes for an RSA key of megabytes
// (validateCSR in pkg/apis/certificates/validation; every node and every machine with a token may ask).
func checkRequest(a admission.Attributes) error {
	is, ok := a.GetObject().(*certificates.CertificateSigningRequest)
	if !ok || len(is.Spec.Request) <= mostRequest {
		return nil
	}
	return admission.NewForbidden(a, fmt.Errorf("the request has %d bytes; at most %d are possible", len(is.Spec.Request), mostRequest))
}
