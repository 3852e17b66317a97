package dashboard

import (
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// certificates tells about the certificate in a Secret; the key beside it stays here.
type certificates struct{ client kubernetes.Interface }

// certificate is what the page shows of one.
type certificate struct {
	Subject   string    `json:"subject"`
	Issuer    string    `json:"issuer"`
	Names     []string  `json:"names"`
	NotBefore time.Time `json:"notBefore"`
	NotAfter  time.Time `json:"notAfter"`
}

func newCertificates(api *rest.Config) (*certificates, error) {
	client, err := kubernetes.NewForConfig(api)
	return &certificates{client}, err
}

func (c *certificates) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secret, err := c.client.CoreV1().Secrets(r.PathValue("namespace")).Get(r.Context(), r.PathValue("name"), metav1.GetOptions{})
	if err != nil {
		code := http.StatusBadGateway
		if status, ok := err.(apierrors.APIStatus); ok {
			code = int(status.Status().Code)
		}
		refuse(w, code, err.Error())
		return
	}
	block, _ := pem.Decode(secret.Data["tls.crt"])
	if block == nil {
		refuse(w, http.StatusUnprocessableEntity, "The Secret has no certificate under tls.crt.")
		return
	}
	x, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		refuse(w, http.StatusUnprocessableEntity, "The certificate of the Secret cannot be read: "+err.Error())
		return
	}
	names := append([]string{}, x.DNSNames...) // never null for the page
	for _, ip := range x.IPAddresses {
		names = append(names, ip.String())
	}
	answer(w, certificate{x.Subject.String(), x.Issuer.String(), names, x.NotBefore, x.NotAfter})
}
