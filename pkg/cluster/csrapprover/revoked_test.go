package csrapprover

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	certificates "k8s.io/api/certificates/v1"
	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coracle-dev/coracle/pkg/cluster/join/endpoint"
	"github.com/coracle-dev/coracle/pkg/cluster/nodeguard"
	"github.com/coracle-dev/coracle/pkg/cluster/pki"
)

// TestRevoked: once a name was revoked, only keys of the machine that has it now get certificates, and the key of a client certificate is
// recorded before it is approved.
func TestRevoked(t *testing.T) {
	by := func(c *certificates.CertificateSigningRequest, name, key string) *certificates.CertificateSigningRequest {
		c.Name = name
		if key != "" {
			c.Spec.Extra = map[string]certificates.ExtraValue{nodeguard.KeyExtra: {key}}
		}
		return c
	}
	wanted := clientCSR(t, nil)
	req, err := pki.ParseRequest(wanted.Spec.Request)
	if err != nil {
		t.Fatal(err)
	}
	requests := []*certificates.CertificateSigningRequest{
		by(clientCSR(t, nil), "old", "old"), by(clientCSR(t, nil), "unknown", ""), by(wanted, "new", "new"),
		by(csr(request(t, nil)), "serving-old", "old"), by(csr(request(t, nil)), "serving-new", "new"),
	}
	synctest.Test(t, func(t *testing.T) {
		agent := node("agent", "192.0.2.2", "2001:db8::2")
		client := fake.NewClientset(&agent)
		client.PrependReactor("*", "leases", refuseStale(client))
		claims := endpoint.Claims{Client: client}
		before := ""
		for _, key := range []string{"old", "new"} {
			if err := claims.Revoke(t.Context(), "agent", before); err != nil {
				t.Fatal(err)
			}
			if _, err := claims.Adopt(t.Context(), "agent", key, func(*core.Node, bool) bool { return true }); err != nil {
				t.Fatal(err)
			}
			before = key
		}
		start(t, client)
		for _, r := range requests {
			if _, err := client.CertificatesV1().CertificateSigningRequests().Create(t.Context(), r, meta.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		for name, want := range map[string]certificates.RequestConditionType{
			"old": certificates.CertificateDenied, "unknown": certificates.CertificateDenied, "new": certificates.CertificateApproved,
			"serving-old": certificates.CertificateDenied, "serving-new": certificates.CertificateApproved,
		} {
			if got := decision(t, client, name); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		claim, err := client.CoordinationV1().Leases("kube-system").Get(t.Context(), endpoint.ClaimPrefix+"agent", meta.GetOptions{})
		if keys := endpoint.KeysOf(claim); err != nil || !keys.Allows(pki.RequestFingerprint(req)) || keys.Allows("unknown") {
			t.Errorf("recorded are %+v, %v", keys, err)
		}
	})
}

// refuseStale makes the fake client refuse an update of a Lease that changed since it was read, as the API server does: the requests of one
// machine are decided at the same time and write the same claim. The client calls it under a lock that it holds until the object is stored.
func refuseStale(client *fake.Clientset) clienttesting.ReactionFunc {
	version := 0
	return func(action clienttesting.Action) (bool, runtime.Object, error) {
		write, ok := action.(interface{ GetObject() runtime.Object })
		if !ok { // it reads
			return false, nil, nil
		}
		lease := write.GetObject().(*coordination.Lease)
		if action.Matches("update", "leases") {
			stored, err := client.Tracker().Get(action.GetResource(), lease.Namespace, lease.Name)
			if err != nil {
				return true, nil, err
			}
			if stored.(*coordination.Lease).ResourceVersion != lease.ResourceVersion {
				return true, nil, apierrors.NewConflict(coordination.Resource("leases"), lease.Name, nil)
			}
		}
		version++
		lease.ResourceVersion = strconv.Itoa(version)
		return false, nil, nil
	}
}
