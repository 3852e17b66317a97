package endpoint

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/cluster/pki"
)

// machine is one that asks.
type machine struct {
	key     *ecdsa.PrivateKey
	request join.Request
}

func newMachine(t *testing.T, node string) *machine {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{key, join.Request{Node: node, Version: "v1.37.1+coracle.1"}}
	m.sign(t)
	return m
}

// sign makes the machine's request for a certificate.
func (m *machine) sign(t *testing.T) {
	subject := pkix.Name{CommonName: pki.NodeUser + m.request.Node, Organization: []string{pki.NodeGroup}}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, m.key)
	if err != nil {
		t.Fatal(err)
	}
	m.request.CSR = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

// TestMachine: what a machine may say of itself is recorded when it joins with a token, and only then.
func TestMachine(t *testing.T) {
	c := newCluster(t)
	inside, outside, seen := netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("203.0.113.10"), netip.MustParseAddr("198.51.100.9")
	want := func(name string, want Machine) {
		t.Helper()
		claim, err := c.claims().get(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		got, known := MachineOf(claim)
		got.Key = ""
		if !reflect.DeepEqual(got, want) || known != (len(want.Addresses) > 0) {
			t.Errorf("%s: %v %+v, want %+v", name, known, got, want)
		}
	}
	labels := map[string]string{"example.com/zone": "b"}
	m := newMachine(t, "a")
	m.request.Addresses, m.request.External, m.request.Labels = []netip.Addr{inside}, []netip.Addr{outside, seen}, labels
	c.want(t, agentToken, m, join.PathAgent, 200, "")
	want("a", Machine{Addresses: []netip.Addr{inside}, External: []netip.Addr{seen}, Labels: labels})

	m.request.Addresses = []netip.Addr{outside}
	c.want(t, who{node: "a"}, m, join.PathAgent, 200, "") // renewal
	want("a", Machine{Addresses: []netip.Addr{inside}, External: []netip.Addr{seen}, Labels: labels})

	m = newMachine(t, "b")
	m.request.Addresses, m.request.External = []netip.Addr{inside}, []netip.Addr{outside}
	c.want(t, serverToken, m, join.PathServer, 200, "")
	want("b", Machine{Server: true, Addresses: []netip.Addr{inside}, External: []netip.Addr{outside}})

	c.want(t, agentToken, newMachine(t, "before"), join.PathAgent, 200, "")
	want("before", Machine{})
}

// TestLargeMachine: what a machine says of itself cannot fill its claim, which could not be revoked then.
func TestLargeMachine(t *testing.T) {
	ip := netip.MustParseAddr("192.0.2.10")
	many := map[string]string{}
	for i := range maxLabels + 1 {
		many[fmt.Sprintf("example.com/%d", i)] = ""
	}
	for name, test := range map[string]struct {
		change func(*join.Request)
		text   string
	}{
		"many labels":    {func(r *join.Request) { r.Labels = many }, "at most 64 labels"},
		"a long value":   {func(r *join.Request) { r.Labels = map[string]string{"zone": strings.Repeat("<", 9000)} }, "is not a label"},
		"no key":         {func(r *join.Request) { r.Labels = map[string]string{"a b": "c"} }, "is not a label"},
		"many addresses": {func(r *join.Request) { r.Addresses = make([]netip.Addr, maxAddresses+1) }, "at most"},
		"many external":  {func(r *join.Request) { r.External = make([]netip.Addr, maxAddresses+1) }, "at most"},
		"a zone":         {func(r *join.Request) { r.Addresses = []netip.Addr{ip, netip.MustParseAddr("fd00::1%x")} }, "without a zone"},
		"no address":     {func(r *join.Request) { r.External = make([]netip.Addr, 1) }, "without a zone"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, "a")
			m.request.Addresses = []netip.Addr{ip}
			test.change(&m.request)
			newCluster(t).want(t, agentToken, m, join.PathAgent, 400, test.text)
		})
	}
	c := newCluster(t)
	m := newMachine(t, "a")
	m.request.Addresses, m.request.Labels = []netip.Addr{ip}, map[string]string{}
	for i := range maxLabels {
		m.request.Labels[fmt.Sprintf("%s%03d.com/%s", strings.Repeat("a.", 123), i, strings.Repeat("b", 63))] = strings.Repeat("c", 63)
	}
	c.want(t, agentToken, m, join.PathAgent, 200, "")
	if claim, err := c.claims().get(t.Context(), "a"); err != nil || len(claim.Annotations[machineAnnotation]) > 64<<10 {
		t.Errorf("the largest machine takes %d bytes in its claim, %v", len(claim.Annotations[machineAnnotation]), err)
	}
	if err := c.claims().Revoke(t.Context(), "a", m.fingerprint(t)); err != nil {
		t.Fatal(err)
	}
	if claim, err := c.claims().get(t.Context(), "a"); err != nil || claim.Annotations[machineAnnotation] != "" {
		t.Errorf("a claim that was too large stays so: %v, %v", claim, err)
	}
	var claim coordinationv1.Lease
	for i := range maxRevoked + 9 {
		key := fmt.Sprint(i)
		claim.Spec.HolderIdentity = &key
		restrict(&claim, true)
	}
	if k := KeysOf(&claim); len(k.revoked) != maxRevoked || !k.Revoked(fmt.Sprint(maxRevoked+8)) {
		t.Errorf("%d keys are recorded", len(k.revoked))
	}
}
