package csrapprover

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	certificates "k8s.io/api/certificates/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

func testConfig() config.Config {
	return config.Config{
		Network: config.Network{ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.43.0.0/16")}, Domain: "cluster.local"},
		API:     config.API{Advertise: netip.MustParseAddr("192.0.2.1"), SANs: []string{"api.example.org", "198.51.100.7"}},
		Node:    config.Node{Name: "server", IPs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}},
	}
}

func node(name string, addresses ...string) core.Node {
	n := core.Node{ObjectMeta: meta.ObjectMeta{Name: name}}
	n.Status.Conditions = []core.NodeCondition{{Type: core.NodeReady, Status: core.ConditionTrue}}
	n.Status.Addresses = []core.NodeAddress{{Type: core.NodeHostName, Address: name}}
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, core.NodeAddress{Type: core.NodeInternalIP, Address: a})
	}
	return n
}

// marked is a Node that was seen at an address.
func marked(n core.Node, seen string) core.Node {
	n = *n.DeepCopy()
	n.Annotations = map[string]string{kube.SeenAddresses: seen}
	return n
}

func request(t *testing.T, change func(*x509.CertificateRequest)) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.CertificateRequest{
		Subject:     pkix.Name{CommonName: "system:node:agent", Organization: []string{"system:nodes"}},
		DNSNames:    []string{"agent"},
		IPAddresses: []net.IP{net.ParseIP("192.0.2.2"), net.ParseIP("2001:db8::2")},
	}
	if change != nil {
		change(template)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

func csr(req []byte) *certificates.CertificateSigningRequest {
	return &certificates.CertificateSigningRequest{
		ObjectMeta: meta.ObjectMeta{Name: "csr-1", CreationTimestamp: meta.Now()},
		Spec: certificates.CertificateSigningRequestSpec{
			Request: req, SignerName: certificates.KubeletServingSignerName,
			Username: "system:node:agent", Groups: []string{"system:nodes", "system:authenticated"},
			Usages: []certificates.KeyUsage{certificates.UsageServerAuth, certificates.UsageDigitalSignature},
		},
	}
}

func addDNS(name string) func(*x509.CertificateRequest) {
	return func(r *x509.CertificateRequest) { r.DNSNames = append(r.DNSNames, name) }
}

func addIP(ip string) func(*x509.CertificateRequest) {
	return func(r *x509.CertificateRequest) { r.IPAddresses = append(r.IPAddresses, net.ParseIP(ip)) }
}

func TestDecide(t *testing.T) {
	agent := node("agent", "192.0.2.2", "2001:DB8:0::2")
	dead := node("agent-before-its-renaming", "192.0.2.2")
	dead.Status.Conditions[0].Status = core.ConditionUnknown
	second := node("second", "192.0.2.4")
	second.Labels = map[string]string{kube.ControlPlaneLabel: "true"}
	second.Annotations = map[string]string{kube.APINamesAnnotation: "API-2.example.org,2001:db8:0::99"}
	pretender := *second.DeepCopy()
	pretender.Labels = nil
	claims := func(addresses ...string) []core.Node {
		n := *agent.DeepCopy()
		for _, a := range addresses {
			n.Status.Addresses = append(n.Status.Addresses, core.NodeAddress{Type: core.NodeInternalDNS, Address: a})
		}
		return []core.Node{node("server", "192.0.2.1"), n}
	}
	for _, tc := range []struct {
		name    string
		request func(*x509.CertificateRequest)
		csr     func(*certificates.CertificateSigningRequest)
		nodes   []core.Node
		want    string // "ok", or what the reason holds
		wait    bool
	}{
		{name: "its own name and addresses", want: "ok"},
		{name: "a usage that RSA keys need", csr: withUsages("key encipherment", "server auth", "digital signature"), want: "ok"},
		{name: "fewer addresses", request: func(r *x509.CertificateRequest) { r.IPAddresses = nil }, want: "ok"},
		{name: "a name that a cloud gave it", request: addDNS("agent.zone.example"), nodes: claims("agent.zone.example"), want: "ok"},
		{name: "a dead node with its address", nodes: append(claims(), dead), want: "is Node agent-before-its-renaming's"},
		{name: "localhost", request: addDNS("localhost"), nodes: claims("localhost"), want: "belongs to the API"},
		{name: "a Service's address as a name", request: addDNS("10.43.0.1"), nodes: claims("10.43.0.1"), want: "is an address"},
		{name: "an address that is not there yet", request: addIP("192.0.2.77"), want: "192.0.2.77 is not among", wait: true},
		{name: "a name that is not its own", request: addDNS("other"), want: "other is not among", wait: true},
		{name: "no node", nodes: []core.Node{node("server")}, want: "no Node agent", wait: true},
		{name: "a user", csr: func(c *certificates.CertificateSigningRequest) { c.Spec.Username = "eve" }, want: `"eve" is not a node`},
		{name: "a node without a name", csr: func(c *certificates.CertificateSigningRequest) { c.Spec.Username = "system:node:" }, want: "is not a node"},
		{name: "not in the group", csr: func(c *certificates.CertificateSigningRequest) { c.Spec.Groups = nil }, want: "is not a node"},
		{name: "for another node", csr: func(c *certificates.CertificateSigningRequest) { c.Spec.Username = "system:node:server" }, want: "common name"},
		{name: "rubbish", csr: func(c *certificates.CertificateSigningRequest) { c.Spec.Request = []byte("x") }, want: "reading the request"},
		{name: "more groups", request: func(r *x509.CertificateRequest) {
			r.Subject.Organization = append(r.Subject.Organization, "system:masters")
		}, want: "organization"},
		{name: "a URI", request: func(r *x509.CertificateRequest) { r.URIs = []*url.URL{{Scheme: "spiffe", Host: "x"}} }, want: "only DNS names"},
		{name: "no names", request: func(r *x509.CertificateRequest) { r.DNSNames, r.IPAddresses = nil, nil }, want: "no DNS name"},
		{name: "as a client too", csr: withUsages("digital signature", "server auth", "client auth"), want: "usages"},
		{name: "no usage", csr: withUsages(), want: "usages"},
		{name: "the API's name", request: addDNS("kubernetes.default.svc"), nodes: claims("kubernetes.default.svc"), want: "belongs to the API"},
		{name: "the API's short name", request: addDNS("Kubernetes"), nodes: claims("kubernetes"), want: "belongs to the API"},
		{name: "a Service's name", request: addDNS("db.prod.svc.cluster.local"), nodes: claims("db.prod.svc.cluster.local"), want: "belongs to the API"},
		{name: "the API's extra name", request: addDNS("api.example.org"), nodes: claims("api.example.org"), want: "belongs to the API"},
		{name: "the name of another server's API", request: addDNS("api-2.example.org"), nodes: append(claims("api-2.example.org"), second), want: "belongs to the API"},
		{name: "the address of another server's API", request: addIP("2001:db8::99"), nodes: append(claims("2001:db8::99"), second), want: "belongs to the API"},
		{name: "what only a node says is an API's", request: addDNS("api-2.example.org"), nodes: append(claims("api-2.example.org"), pretender), want: "ok"},
		{name: "a wildcard", request: addDNS("*.example.org"), nodes: claims("*.example.org"), want: "wildcard"},
		{name: "a Service's address", request: addIP("10.43.0.1"), nodes: claims("10.43.0.1"), want: "belongs to the API"},
		{name: "the API's extra address", request: addIP("198.51.100.7"), nodes: claims("198.51.100.7"), want: "belongs to the API"},
		{name: "the loopback", request: addIP("127.0.0.1"), nodes: claims("127.0.0.1"), want: "belongs to the API"},
		{name: "the server's address", request: addIP("192.0.2.1"), nodes: claims("192.0.2.1"), want: "belongs to the API"},
		{name: "another node's address", request: addIP("192.0.2.3"), nodes: append(claims("192.0.2.3"), node("third", "192.0.2.3")), want: "is Node third's"},
		{name: "its address, which another node only claims", nodes: []core.Node{marked(agent, "192.0.2.2"), marked(node("third", "192.0.2.2"), "")}, want: "ok"},
		{name: "its address, where another node was seen too", nodes: []core.Node{marked(agent, "192.0.2.2"), marked(node("third", "192.0.2.2"), "192.0.2.2")}, want: "is Node third's"},
		{name: "another node's name", request: addDNS("third"), nodes: append(claims("third"), node("third")), want: "is Node third's"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := csr(request(t, tc.request))
			if tc.csr != nil {
				tc.csr(c)
			}
			if tc.nodes == nil {
				tc.nodes = claims()
			}
			v := newPolicy(testConfig()).decide(c, tc.nodes)
			if v.approve != (tc.want == "ok") || v.wait != tc.wait || !v.approve && !strings.Contains(v.reason, tc.want) {
				t.Errorf("got %+v, want %q, wait %v", v, tc.want, tc.wait)
			}
		})
	}
}

// TestDecideServersOwnNode: the server's own name is decided like every other. The Node has its label a moment after the first start, unless
// the name is another machine's.
func TestDecideServersOwnNode(t *testing.T) {
	c := csr(request(t, func(r *x509.CertificateRequest) {
		r.Subject.CommonName = "system:node:server"
		r.DNSNames, r.IPAddresses = []string{"server"}, []net.IP{net.ParseIP("192.0.2.1")}
	}))
	c.Spec.Username = "system:node:server"
	if v := newPolicy(testConfig()).decide(c, []core.Node{node("server", "192.0.2.1")}); v.approve || !v.wait {
		t.Errorf("without a label: %+v", v)
	}
	if v := newPolicy(testConfig()).decide(c, []core.Node{labelled(node("server", "192.0.2.1"))}); !v.approve {
		t.Errorf("denied: %s", v.reason)
	}
}
