package pki

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"io/fs"
	"maps"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/pkg/core/config"
)

// joiner is an agent that asks a server of testConfig's.
func joiner(t *testing.T, name string) config.Config {
	cfg := testConfig(t)
	cfg.Role, cfg.Node.Name, cfg.Node.BalancerPort = config.Agent, name, 6444
	return cfg
}

func TestNodeJoins(t *testing.T) {
	server, agent := testConfig(t), joiner(t, "boat-2")
	ensureAll(t, server)
	if _, _, err := NodeCert(agent); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("before it joined: %v", err)
	}
	csr, err := NodeRequest(agent.Dirs, "boat-2")
	if err != nil {
		t.Fatal(err)
	}
	again, err := NodeRequest(agent.Dirs, "boat-2")
	if err != nil {
		t.Fatal(err)
	}
	first, err := CheckNodeRequest(csr, "boat-2")
	if err != nil {
		t.Fatal(err)
	}
	second, err := CheckNodeRequest(again, "boat-2")
	own, ownErr := Identity(agent.Dirs)
	if err != nil || ownErr != nil || first != second || first != own || len(first) != 64 {
		t.Errorf("identities %q, %q, %q, %v, %v", first, second, own, err, ownErr)
	}
	cert, err := SignNode(server.Dirs, csr, "boat-2", 0)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(clusterCA.certFile(server.Dirs))
	if err != nil {
		t.Fatal(err)
	}
	if err := AcceptNode(agent, ca, cert); err != nil {
		t.Fatal(err)
	}
	if due, expires, err := NodeCert(agent); err != nil || due.After(expires) {
		t.Errorf("after it joined: %s, %s, %v", due, expires, err)
	}
	if err := EnsureAgent(agent); err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := os.ReadFile(agent.Dirs.NodeConfig("node.kubeconfig"))
	if err != nil || !strings.Contains(string(kubeconfig), "https://127.0.0.1:6444") {
		t.Errorf("kubeconfig: %v\n%s", err, kubeconfig)
	}
	renamed := agent
	renamed.Node.Name = "boat-3"
	if _, _, err := NodeCert(renamed); err == nil {
		t.Error("the certificate is taken for another node's name")
	}
}

func TestBadRequests(t *testing.T) {
	server := testConfig(t)
	ensureAll(t, server)
	csr, err := NodeRequest(joiner(t, "boat-2").Dirs, "boat-2")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ name, csr, node, want string }{
		{"another node's", string(csr), "boat-3", "is for"},
		{"nothing", "", "boat-2", "not in PEM form"},
		{"cut", string(csr[:len(csr)/2]), "boat-2", "not in PEM form"},
		{"damaged", strings.Replace(string(csr), "\nMI", "\nAA", 1), "boat-2", "certificate request"},
		{"no request", strings.ReplaceAll(string(csr), "CERTIFICATE REQUEST", "CERTIFICATE"), "boat-2", "not in PEM form"},
		{"with addresses", altered(t, func(r *x509.CertificateRequest) { r.IPAddresses = []net.IP{{192, 0, 2, 1}} }), "boat-2", "alternative names"},
		{"with names", altered(t, func(r *x509.CertificateRequest) { r.DNSNames = []string{"kubernetes"} }), "boat-2", "alternative names"},
		{"of no group", altered(t, func(r *x509.CertificateRequest) { r.Subject.Organization = nil }), "boat-2", "is for"},
		{"of the masters", altered(t, func(r *x509.CertificateRequest) { r.Subject.Organization = []string{"system:masters"} }), "boat-2", "is for"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := SignNode(server.Dirs, []byte(tc.csr), tc.node, 0); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// altered is a request for node boat-2 that asks for something else too.
func altered(t *testing.T, change func(*x509.CertificateRequest)) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	r := &x509.CertificateRequest{Subject: pkix.Name{CommonName: NodeUser + "boat-2", Organization: []string{NodeGroup}}}
	change(r)
	der, err := x509.CreateCertificateRequest(rand.Reader, r, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: blockRequest, Bytes: der}))
}

// A certificate for somebody else's key, or by another authority, is not accepted.
func TestAcceptNode(t *testing.T) {
	server, other, agent, thief := testConfig(t), testConfig(t), joiner(t, "boat-2"), joiner(t, "boat-2")
	ensureAll(t, server)
	ensureAll(t, other)
	ca, err := os.ReadFile(clusterCA.certFile(server.Dirs))
	if err != nil {
		t.Fatal(err)
	}
	signed := func(by, who config.Config) []byte {
		csr, err := NodeRequest(who.Dirs, "boat-2")
		if err != nil {
			t.Fatal(err)
		}
		cert, err := SignNode(by.Dirs, csr, "boat-2", 0)
		if err != nil {
			t.Fatal(err)
		}
		return cert
	}
	signed(server, agent)
	for name, cert := range map[string][]byte{"another's key": signed(server, thief), "another authority": signed(other, agent), "nothing": nil} {
		if err := AcceptNode(agent, ca, cert); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

// A server that got the keys makes the rest itself, and the two trust each other.
func TestServerJoins(t *testing.T) {
	first, second := testConfig(t), testConfig(t)
	second.Node.Name = "boat-2"
	ensureAll(t, first)
	keys, err := ReadKeys(first.Dirs)
	if err != nil {
		t.Fatal(err)
	}
	if got := slices.Sorted(maps.Keys(keys)); !slices.Equal(got, []string{"ca.crt", "ca.key", "etcd/ca.crt", "etcd/ca.key",
		"front-proxy-ca.crt", "front-proxy-ca.key", "sa.key"}) {
		t.Errorf("the keys are %q", got)
	}
	for name := range keys {
		part := maps.Clone(keys)
		delete(part, name)
		if err := WriteKeys(testConfig(t).Dirs, part); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("without %s: %v", name, err)
		}
	}
	if err := WriteKeys(second.Dirs, keys); err != nil {
		t.Fatal(err)
	}
	ensureAll(t, second)
	checkAll(t, second)
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		a, _ := os.ReadFile(filepath.Join(first.Dirs.PKI(), name))
		b, _ := os.ReadFile(filepath.Join(second.Dirs.PKI(), name))
		if string(a) != string(b) {
			t.Errorf("%s differs", name)
		}
		if info, err := os.Stat(filepath.Join(second.Dirs.PKI(), name)); err != nil || strings.HasSuffix(name, ".key") && info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
}

// TestLongKey: the signature of a request with a key that nobody needs is not checked, because that would take long.
func TestLongKey(t *testing.T) {
	_, signer, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(nil, &x509.CertificateRequest{}, signer)
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		Info struct {
			Version    int
			Subject    asn1.RawValue
			Key        asn1.RawValue
			Attributes asn1.RawValue
		}
		Algorithm pkix.AlgorithmIdentifier
		Signature asn1.BitString
	}
	if _, err := asn1.Unmarshal(der, &r); err != nil {
		t.Fatal(err)
	}
	for bits, want := range map[int]string{mostBits: "is not signed with its key", mostBits + 1: "has a key of 8193 bits; at most 8192 are possible"} {
		n := new(big.Int).SetBit(new(big.Int).Lsh(big.NewInt(1), uint(bits-1)), 0, 1)
		key, err := x509.MarshalPKIXPublicKey(&rsa.PublicKey{N: n, E: 65537})
		if err != nil {
			t.Fatal(err)
		}
		r.Info.Key = asn1.RawValue{FullBytes: key}
		if der, err = asn1.Marshal(r); err != nil {
			t.Fatal(err)
		}
		if _, err := ParseRequest(pem.EncodeToMemory(&pem.Block{Type: blockRequest, Bytes: der})); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d bits: %v", bits, err)
		}
	}
}
