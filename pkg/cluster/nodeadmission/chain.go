package nodeadmission

import (
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
