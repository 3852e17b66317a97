package csrapprover

import (
	"crypto/x509"
	"net"
	"strings"
	"testing"

	certificates "k8s.io/api/certificates/v1"
	core "k8s.io/api/core/v1"

	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// clientCSR is what a kubelet that bootstraps asks for, on a machine that joined as node agent.
func clientCSR(t *testing.T, change func(*x509.CertificateRequest)) *certificates.CertificateSigningRequest {
	c := csr(request(t, func(r *x509.CertificateRequest) {
		r.DNSNames, r.IPAddresses = nil, nil
		if change != nil {
			change(r)
		}
	}))
	c.Spec.SignerName = certificates.KubeAPIServerClientKubeletSignerName
	c.Spec.Usages = []certificates.KeyUsage{certificates.UsageDigitalSignature, certificates.UsageClientAuth}
	c.Spec.Username, c.Spec.Groups = "system:coracle:node:agent", []string{"system:coracle:nodes", "system:authenticated"}
	return c
}

func withUsages(list ...certificates.KeyUsage) func(*certificates.CertificateSigningRequest) {
	return func(c *certificates.CertificateSigningRequest) { c.Spec.Usages = list }
}

func TestDecideClient(t *testing.T) {
	kubelet := func(c *certificates.CertificateSigningRequest) {
		c.Spec.Username, c.Spec.Groups = "system:node:agent", []string{"system:nodes"}
	}
	forOther := func(r *x509.CertificateRequest) { r.Subject.CommonName = "system:node:server" }
	for _, test := range []struct {
		name    string
		request func(*x509.CertificateRequest)
		csr     func(*certificates.CertificateSigningRequest)
		want    string // "ok", "leave", or what the reason holds
	}{
		{name: "its own", want: "ok"},
		{name: "with RSA", csr: withUsages("digital signature", "key encipherment", "client auth"), want: "ok"},
		{name: "another node's", request: forOther, want: `may have one for system:node:agent only`},
		{name: "another node's, by a kubelet", request: forOther, csr: kubelet, want: `may have one for system:node:agent only`},
		{name: "a kubelet's renewal", csr: kubelet, want: "ok"},
		{name: "an administrator's", csr: func(c *certificates.CertificateSigningRequest) {
			c.Spec.Username, c.Spec.Groups = "system:admin", []string{"system:masters"}
		}, want: "leave"},
		{name: "the name, but not the group", csr: func(c *certificates.CertificateSigningRequest) { c.Spec.Groups = nil }, want: "leave"},
		{name: "more groups", request: func(r *x509.CertificateRequest) {
			r.Subject.Organization = []string{"system:nodes", "system:masters"}
		}, want: "organization"},
		{name: "names", request: func(r *x509.CertificateRequest) { r.IPAddresses = []net.IP{net.ParseIP("192.0.2.2")} }, want: "alternative names"},
		{name: "as a server too", csr: withUsages("digital signature", "client auth", "server auth"), want: "usages"},
		{name: "rubbish", csr: func(c *certificates.CertificateSigningRequest) { c.Spec.Request = []byte("x") }, want: "reading the request"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := clientCSR(t, test.request)
			if test.csr != nil {
				test.csr(c)
			}
			v, ours := decideClient(c)
			switch {
			case ours != (test.want != "leave"), v.approve != (test.want == "ok"):
				t.Errorf("got %+v, ours %t, want %s", v, ours, test.want)
			case ours && !v.approve && !strings.Contains(v.reason, test.want):
				t.Errorf("the reason is %s, want %s", v.reason, test.want)
			}
		})
	}
}

// outside gives a node an external address.
func outside(n core.Node, ip string) core.Node {
	n.Status.Addresses = append(n.Status.Addresses, core.NodeAddress{Type: core.NodeExternalIP, Address: ip})
	return n
}

// labelled makes a node a server's.
func labelled(n core.Node) core.Node {
	n.Labels = map[string]string{kube.ControlPlaneLabel: "true"}
	return n
}

func dead(n core.Node) core.Node {
	n.Status.Conditions[0].Status = core.ConditionUnknown
	return n
}

func TestDecideAmongServers(t *testing.T) {
	const nat = "203.0.113.1"
	for _, test := range []struct {
		name, asks string
		ip         string
		nodes      []core.Node
		want       string
	}{
		{"two agents behind one NAT", "agent", nat, []core.Node{outside(node("agent", "192.0.2.2"), nat), outside(node("third", "192.0.2.3"), nat)}, "ok"},
		{"an agent with a server's external address", "agent", nat,
			[]core.Node{outside(node("agent", "192.0.2.2"), nat), outside(labelled(node("second", "192.0.2.3")), nat)}, "is Node second's"},
		{"an agent whose external address is another's internal one", "agent", "192.0.2.3",
			[]core.Node{outside(node("agent", "192.0.2.2"), "192.0.2.3"), node("third", "192.0.2.3")}, "is Node third's"},
		{"a dead agent's address", "agent", "192.0.2.3", []core.Node{node("agent", "192.0.2.3"), dead(node("third", "192.0.2.3"))}, "is Node third's"},
		{"a dead server's address", "agent", "192.0.2.3", []core.Node{node("agent", "192.0.2.3"), dead(labelled(node("second", "192.0.2.3")))}, "is Node second's"},
		{"another server's own address", "second", "192.0.2.3", []core.Node{labelled(node("second", "192.0.2.3"))}, "ok"},
		{"the API's extra address on another server", "second", "198.51.100.7", []core.Node{labelled(node("second", "198.51.100.7"))}, "ok"},
		{"the API's extra address on an agent", "second", "198.51.100.7", []core.Node{node("second", "198.51.100.7")}, "belongs to the API"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := csr(request(t, func(r *x509.CertificateRequest) {
				r.Subject.CommonName = "system:node:" + test.asks
				r.DNSNames, r.IPAddresses = []string{test.asks}, []net.IP{net.ParseIP(test.ip)}
			}))
			c.Spec.Username = "system:node:" + test.asks
			v := newPolicy(testConfig()).decide(c, test.nodes)
			if v.approve != (test.want == "ok") || !v.approve && !strings.Contains(v.reason, test.want) {
				t.Errorf("got %+v, want %s", v, test.want)
			}
		})
	}
}
