package csrapprover

import (
	"context"
	"crypto/x509"
	"testing"
	"testing/synctest"
	"time"

	certificates "k8s.io/api/certificates/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// start runs an approver against a fake API inside the bubble, until the test ends.
func start(t *testing.T, client *fake.Clientset) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	done, ready := make(chan error, 1), make(chan struct{})
	go func() { done <- Approver{Config: testConfig()}.run(ctx, client, func() { close(ready) }) }()
	<-ready
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// decision returns the type of the request's only condition, or "".
func decision(t *testing.T, client *fake.Clientset, name string) certificates.RequestConditionType {
	t.Helper()
	got, err := client.CertificatesV1().CertificateSigningRequests().Get(t.Context(), name, meta.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Status.Conditions) == 0 {
		return ""
	}
	if n := len(got.Status.Conditions); n > 1 {
		t.Fatalf("%d conditions", n)
	}
	return got.Status.Conditions[0].Type
}

func named(c *certificates.CertificateSigningRequest, name string) *certificates.CertificateSigningRequest {
	c.Name = name
	return c
}

func TestRun(t *testing.T) {
	agent := node("agent", "192.0.2.2", "2001:db8::2")
	good, bad, denied := request(t, nil), request(t, addDNS("kubernetes")), request(t, nil)
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(&agent, named(csr(good), "before"))
		start(t, client)
		create := func(c *certificates.CertificateSigningRequest) {
			if _, err := client.CertificatesV1().CertificateSigningRequests().Create(t.Context(), c, meta.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		create(named(csr(good), "good"))
		create(named(csr(bad), "bad"))
		client2 := named(csr(good), "client")
		client2.Spec.SignerName = certificates.KubeAPIServerClientKubeletSignerName
		create(client2)
		decided := named(csr(denied), "decided")
		decided.Status.Conditions = []certificates.CertificateSigningRequestCondition{{Type: certificates.CertificateDenied, Status: core.ConditionTrue}}
		create(decided)
		time.Sleep(time.Second)
		synctest.Wait()
		for name, want := range map[string]certificates.RequestConditionType{
			"before": certificates.CertificateApproved, "good": certificates.CertificateApproved,
			"bad": certificates.CertificateDenied, "client": certificates.CertificateDenied, "decided": certificates.CertificateDenied,
		} {
			if got := decision(t, client, name); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
	})
}

func TestRunWaitsForTheNode(t *testing.T) {
	req := request(t, nil)
	late := request(t, func(r *x509.CertificateRequest) { r.Subject.CommonName = "system:node:never" })
	synctest.Test(t, func(t *testing.T) {
		never := named(csr(late), "never")
		never.Spec.Username = "system:node:never"
		client := fake.NewClientset(named(csr(req), "early"), never)
		start(t, client)
		time.Sleep(20 * time.Second)
		if got := decision(t, client, "early"); got != "" {
			t.Fatalf("%s before the node was there", got)
		}
		agent := node("agent", "192.0.2.2", "2001:db8::2")
		if _, err := client.CoreV1().Nodes().Create(t.Context(), &agent, meta.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Second)
		if got := decision(t, client, "early"); got != certificates.CertificateApproved {
			t.Errorf("got %q, want it approved", got)
		}
		if got := decision(t, client, "never"); got != "" {
			t.Errorf("%s within the grace", got)
		}
		time.Sleep(grace)
		if got := decision(t, client, "never"); got != certificates.CertificateDenied {
			t.Errorf("got %q, want it denied", got)
		}
	})
}
