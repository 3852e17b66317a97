package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"os"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
)

// binary is the executable under test; its users have called hosts.Bin before.
var binary = os.Getenv("CORACLE_BIN")

// testWebhooks registers webhooks that a pod serves: the API server must reach the pod network.
func testWebhooks(t *testing.T, h *hosts.Host) {
	cert, key := selfSigned(t, "webhook.default.svc")
	h.Apply(manifest(t, "webhook.yaml", "${CERT}", cert, "${KEY}", key, "${CA}", cert))
	h.Kubectl("wait", "--for=condition=Ready", "pod/webhook", "--timeout=3m")

	configMap := func(name, what string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + ", labels: {webhook: " + what + "}}\n"
	}
	hosts.Eventually(t, 2*time.Minute, func() error {
		return refused(h, configMap("denied", "deny"), "denied the request")
	})
	hosts.Eventually(t, 2*time.Minute, func() error {
		h.Kubectl("delete", "configmap", "labelled", "--ignore-not-found")
		h.Apply(configMap("labelled", "mutate"))
		return contains("labels", h.Kubectl("get", "configmap", "labelled", "-o", "jsonpath={.metadata.labels}"), `"added-label":"yes"`)
	})
}

// selfSigned makes a self-signed serving certificate; both results are base64 of PEM.
func selfSigned(t *testing.T, name string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(kind string, der []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return encode("CERTIFICATE", der), encode("PRIVATE KEY", pkcs8)
}
