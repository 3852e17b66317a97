package csrapprover

import (
	"fmt"
	"slices"
	"strings"

	certificates "k8s.io/api/certificates/v1"

	"github.com/coracle-dev/coracle/pkg/cluster/pki"
)

// decideClient judges a request for a kubelet's client certificate. ours is false for what others decide on: the
// controller-manager approves a kubelet's renewal, and people approve what they asked for themselves. A machine that joined
// may have the kubelet's certificate of the same name.
func decideClient(csr *certificates.CertificateSigningRequest) (v verdict, ours bool) {
	joined, isJoined := strings.CutPrefix(csr.Spec.Username, pki.NodeUser)
	isJoined = isJoined && joined != "" && slices.Contains(csr.Spec.Groups, pki.NodeGroup)
	isKubelet := strings.HasPrefix(csr.Spec.Username, nodeUserPrefix) && slices.Contains(csr.Spec.Groups, nodeGroup)
	if !isJoined && !isKubelet {
		return verdict{}, false
	}
	req, err := parse(csr.Spec.Request)
	if err != nil {
		return deny("reading the request: %v", err), true
	}
	want := csr.Spec.Username
	if isJoined {
		want = nodeUserPrefix + joined
	}
	switch {
	case req.Subject.CommonName != want:
		return deny("it is for %q, and %s may have one for %s only", req.Subject.CommonName, csr.Spec.Username, want), true
	case isKubelet:
		return verdict{}, false
	case !slices.Equal(req.Subject.Organization, []string{nodeGroup}):
		return deny("the organization must be %s", nodeGroup), true
	case len(req.DNSNames)+len(req.IPAddresses)+len(req.EmailAddresses)+len(req.URIs) > 0:
		return deny("a client certificate has no alternative names"), true
	case !usagesFit(csr.Spec.Usages, certificates.UsageClientAuth):
		return deny("the usages must be digital signature, client auth and at most key encipherment, not %s", fmt.Sprint(csr.Spec.Usages)), true
	}
	return verdict{approve: true}, true
}
