package node

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

func machine(t *testing.T, role config.Role, name string) config.Config {
	root := t.TempDir()
	return config.Config{
		Role:    role,
		Dirs:    paths.Dirs{Data: root + "/data", Run: root + "/run", Config: root + "/etc", Kubelet: root + "/kubelet"},
		Network: config.Network{Domain: "cluster.local", ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.43.0.0/16")}},
		API: config.API{Bind: netip.IPv4Unspecified(), Advertise: netip.MustParseAddr("192.0.2.1"), Port: 6443,
			KubeconfigPath: root + "/etc/kubeconfig.yaml", KubeconfigMode: 0o600},
		Node: config.Node{Name: name, IPs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}},
	}
}

// TestAdmittedExpired: a node whose certificate expires while it runs, or whose clock shows that late, renews it. One that was removed does not.
func TestAdmittedExpired(t *testing.T) {
	server, agent := machine(t, config.Server, "server"), machine(t, config.Agent, "agent")
	if _, err := pki.EnsureServer(server); err != nil {
		t.Fatal(err)
	}
	serving, err := tls.LoadX509KeyPair(server.Dirs.PKI()+"/apiserver.crt", server.Dirs.PKI()+"/apiserver.key")
	if err != nil {
		t.Fatal(err)
	}
	ca, err := pki.OwnCA(server.Dirs)
	if err != nil {
		t.Fatal(err)
	}
	removed := false
	api := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch expired := time.Now().After(r.TLS.PeerCertificates[0].NotAfter); {
		case removed:
			w.WriteHeader(http.StatusForbidden)
			_ = json.NewEncoder(w).Encode(join.Refusal{Message: "removed", Reason: join.ReasonRemoved})
		case r.URL.Path == join.PathAgent:
			var request join.Request
			_ = json.NewDecoder(r.Body).Decode(&request)
			cert, err := pki.SignNode(server.Dirs, request.CSR, request.Node, 0)
			if err != nil {
				t.Error(err)
			}
			_ = json.NewEncoder(w).Encode(join.Response{Cert: cert, Cluster: join.Cluster{CA: ca}})
		case expired:
			w.WriteHeader(http.StatusUnauthorized)
		default:
			_ = json.NewEncoder(w).Encode(join.Cluster{CA: ca})
		}
	}))
	api.TLS = &tls.Config{Certificates: []tls.Certificate{serving}, ClientAuth: tls.RequestClientCert}
	api.StartTLS()
	t.Cleanup(api.Close)
	agent.Node.BalancerPort = netip.MustParseAddrPort(api.Listener.Addr().String()).Port()
	csr, err := pki.NodeRequest(agent.Dirs, "agent")
	if err != nil {
		t.Fatal(err)
	}
	cert, err := pki.SignNode(server.Dirs, csr, "agent", 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := pki.AcceptNode(agent, ca, cert); err != nil {
		t.Fatal(err)
	}
	expire(t, server, agent)
	if err := admitted(t.Context(), agent); err != nil || expired(agent) {
		t.Errorf("%v; its certificate has expired: %t", err, expired(agent))
	}
	expire(t, server, agent)
	removed = true
	if err := admitted(t.Context(), agent); exitcode.ClassOf(err) != exitcode.Removed || !expired(agent) {
		t.Errorf("a machine that was removed: %v", err)
	}
}

// expire replaces the node's certificate by one that has expired.
func expire(t *testing.T, server, agent config.Config) {
	t.Helper()
	ca, err := tls.LoadX509KeyPair(server.Dirs.PKI()+"/ca.crt", server.Dirs.PKI()+"/ca.key")
	if err != nil {
		t.Fatal(err)
	}
	file, key := pki.NodeFiles(agent.Dirs)
	pair, err := tls.LoadX509KeyPair(file, key)
	if err != nil {
		t.Fatal(err)
	}
	late := *pair.Leaf
	late.NotBefore, late.NotAfter = time.Now().AddDate(0, -13, 0), time.Now().AddDate(0, -1, 0)
	der, err := x509.CreateCertificate(rand.Reader, &late, ca.Leaf, late.PublicKey, ca.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil {
		t.Fatal(err)
	}
}
