package nodeadmission

import (
	"os"
	"path/filepath"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/kubernetes/pkg/apis/certificates"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// TestChain: only the serving certificate of a kubelet is completed, once, when it is issued.
func TestChain(t *testing.T) {
	dirs := paths.Dirs{Data: t.TempDir()}
	request := func(signer, certificate string) *certificates.CertificateSigningRequest {
		r := &certificates.CertificateSigningRequest{Spec: certificates.CertificateSigningRequestSpec{SignerName: signer}}
		r.Status.Certificate = []byte(certificate)
		return r
	}
	const serving, client = certificatesv1.KubeletServingSignerName, certificatesv1.KubeAPIServerClientKubeletSignerName
	admit := func(sub string, is, was *certificates.CertificateSigningRequest) string {
		t.Helper()
		if err := New(config.Config{Dirs: dirs}).Admit(t.Context(), attributes("system:kube-controller-manager", sub, is, was), nil); err != nil {
			t.Error(err)
		}
		return string(is.Status.Certificate)
	}
	if got := admit("status", request(serving, "issued "), request(serving, "")); got != "issued " {
		t.Errorf("without a former authority: %q", got)
	}
	if err := os.MkdirAll(dirs.PKI(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dirs.PKI(), "ca-cross.crt"), []byte("statement"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		sub     string
		is, was *certificates.CertificateSigningRequest
		want    string
	}{
		{"status", request(serving, "issued "), request(serving, ""), "issued statement"},
		{"status", request(serving, "issued "), request(serving, "issued "), "issued "},
		{"status", request(serving, ""), request(serving, ""), ""},
		{"approval", request(serving, "issued "), request(serving, ""), "issued "},
		{"status", request(client, "issued "), request(client, ""), "issued "},
	} {
		if got := admit(c.sub, c.is, c.was); got != c.want {
			t.Errorf("%s of %s: %q instead of %q", c.sub, c.is.Spec.SignerName, got, c.want)
		}
	}
}

// TestLargeRequest: a request for a certificate is refused before its signature is checked if its key can only be meant to take the server's time.
func TestLargeRequest(t *testing.T) {
	for size, ok := range map[int]bool{2 << 10: true, mostRequest: true, mostRequest + 1: false} {
		r := &certificates.CertificateSigningRequest{Spec: certificates.CertificateSigningRequestSpec{Request: make([]byte, size)}}
		err := New(config.Config{Dirs: paths.Dirs{Data: t.TempDir()}}).Admit(t.Context(), attributes("system:node:worker", "", r, nil), nil)
		if (err == nil) != ok || err != nil && !apierrors.IsForbidden(err) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}
