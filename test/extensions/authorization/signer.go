package authorization

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"time"

	certificates "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Sign answers a PodCertificateRequest with a certificate of an authority, in the pod's name. The API server has verified that the kubelet has the key.
func Sign(ctx context.Context, client kubernetes.Interface, r *certificates.PodCertificateRequest, authority *Issuer) error {
	asked, err := x509.ParseCertificateRequest(r.Spec.StubPKCS10Request)
	if err != nil {
		return err
	}
	now := time.Now().Truncate(time.Second)
	from, until, refresh := metav1.NewTime(now.Add(-time.Minute)), metav1.NewTime(now.Add(2*time.Hour)), metav1.NewTime(now.Add(time.Hour))
	leaf := &x509.Certificate{SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: r.Namespace + "/" + r.Spec.PodName},
		NotBefore: from.Time, NotAfter: until.Time, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, leaf, &x509.Certificate{Subject: pkix.Name{CommonName: "pods"}}, asked.PublicKey, authority.EC)
	if err != nil {
		return err
	}
	r.Status = certificates.PodCertificateRequestStatus{
		CertificateChain: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), NotBefore: &from, NotAfter: &until, BeginRefreshAt: &refresh,
		Conditions: []metav1.Condition{{Type: certificates.PodCertificateRequestConditionTypeIssued, Status: metav1.ConditionTrue, Reason: "Signed",
			Message: "by example.org/pods", LastTransitionTime: metav1.Now()}},
	}
	_, err = client.CertificatesV1().PodCertificateRequests(r.Namespace).UpdateStatus(ctx, r, metav1.UpdateOptions{})
	return err
}
