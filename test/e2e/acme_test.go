package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-dev/coracle/test/acmeserver"
	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/registries"
)

// acmeAddress is where the servers of TestThreeServers get certificates.
var acmeAddress = netip.MustParseAddrPort("172.30.0.201:14000")

// acmeCA is the file with what verifies that server.
const acmeCA = "/etc/coracle/acme-ca.crt"

// acmeLife is how long its certificates are valid. They are renewed after two thirds of it.
const acmeLife = 60 * time.Second

// acmeArgs make servers ask it.
var acmeArgs = []string{"--acme-email=ops@example.com", "--acme-server=https://" + acmeAddress.String() + "/dir", "--acme-ca-file=" + acmeCA}

// acme are certificates that the servers get by ACME.
type acme struct {
	*hosts.Cluster
	authority *registries.Authority
	server    *acmeserver.Server
	serials   map[string]bool // of the certificates that were served
}

// withAuthority returns a preparation of hosts that writes the file.
func (a *acme) withAuthority(t *testing.T, further func(*hosts.Host) []string) func(*hosts.Host) []string {
	a.authority = registries.NewAuthority(t, "of the ACME server")
	return func(h *hosts.Host) []string {
		if err := os.WriteFile(h.Path(acmeCA), a.authority.PEM, 0o644); err != nil {
			t.Fatal(err)
		}
		return further(h)
	}
}

// start starts the ACME server on a host of its own. For it the host is that of a server that does not lead, or one where nothing is.
func (a *acme) start(t *testing.T, c *hosts.Cluster) {
	a.Cluster, a.serials = c, map[string]bool{}
	h := hosts.New(t, c.Wire, "acme", hosts.Options{})
	h.SetIP(acmeAddress.Addr())
	follower := c.Servers[(leading(t, c, c.Servers[0])+1)%len(c.Servers)]
	a.server = acmeserver.Start(t, h, acmeAddress, acmeserver.Options{
		HTTP: 80, TLS: 443, Life: acmeLife, Authority: a.authority,
		Hosts: map[string][]string{"web.acme.test": {follower.IP.String()}, "gateway.acme.test": {follower.IP.String()}, "own.acme.test": {ownAddress}, "killed.acme.test": {follower.IP.String()}, "wrong.acme.test": {h.IP.String()}},
	})
}

// handshake is an error if clients refuse the certificate with which a server serves a host.
func (a *acme) handshake(t *testing.T, of *hosts.Host, host string, look func(*x509.Certificate)) error {
	conn, err := of.Dial(t.Context(), "tcp", net.JoinHostPort(of.IP.String(), "443"))
	if err != nil {
		return err
	}
	defer conn.Close()
	client := tls.Client(conn, &tls.Config{ServerName: host, RootCAs: a.server.Roots()})
	if err := client.HandshakeContext(t.Context()); err != nil {
		return err
	}
	if look != nil {
		look(client.ConnectionState().PeerCertificates[0])
	}
	return nil
}

// serial returns that of the certificate with which a server serves web.acme.test, and adds it to serials.
func (a *acme) serial(t *testing.T, of *hosts.Host) (serial string, err error) {
	err = a.handshake(t, of, "web.acme.test", func(leaf *x509.Certificate) { serial = leaf.SerialNumber.Text(16) })
	if err == nil {
		a.serials[serial] = true
	}
	return serial, err
}

// testIssued: a host that leads to any server gets a certificate, which all servers serve. One that leads elsewhere gets none, and people are told.
func (a *acme) testIssued(t *testing.T) {
	h := a.Servers[0].For(t)
	h.Kubectl("create", "secret", "generic", "taken", "--from-literal=mine=yes")
	began := time.Now()
	for name, host := range map[string]string{"web": "web.acme.test", "wrong": "wrong.acme.test", "taken": "taken.acme.test"} {
		h.Apply(certified(name, host))
	}
	for _, s := range a.Servers {
		hosts.Eventually(t, 60*time.Second, func() error {
			_, err := a.serial(t, s)
			return err
		})
	}
	t.Logf("all servers have the certificate %.1f s after the Ingress was made", time.Since(began).Seconds())
	for name, want := range map[string]string{"web": "CertificateIssued: Secret default/web has a certificate for web.acme.test", "wrong": "CertificateFailed: no certificate for wrong.acme.test: ", "taken": "was not made by coracle"} {
		hosts.Eventually(t, 60*time.Second, func() error {
			events := h.Kubectl("get", "events", "--field-selector=involvedObject.name="+name, "-o", `jsonpath={range .items[*]}{.reason}: {.message}{"\n"}{end}`)
			if !strings.Contains(events, want) {
				return fmt.Errorf("the Events of %s are %s", name, events)
			}
			return nil
		})
	}
	if data := h.Kubectl("get", "secret", "taken", "-o", "jsonpath={.data}"); data != `{"mine":"eWVz"}` {
		t.Errorf("another's Secret has %s", data)
	}
	if out, err := h.TryCoracle("kubectl", "-n", "kube-system", "get", "secret", "coracle-acme-challenges"); err == nil {
		t.Errorf("challenges are left: %s", out)
	}
	a.testTold(t, h)
	a.testReflected(t)
}

// certified is an Ingress that asks for a certificate.
func certified(name, host string) string {
	return fmt.Sprintf(`apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: %[1]s, annotations: {coracle.dev/acme: "true"}}
spec:
  tls: [{hosts: [%[2]s], secretName: %[1]s}]
  rules: [{host: %[2]s, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: none, port: {number: 80}}}}]}}]
`, name, host)
}

// testKilled: the server that asks dies while the ACME server validates. The next one goes on with the same order.
func (a *acme) testKilled(t *testing.T) {
	h := a.Servers[0].For(t)
	leader := a.Servers[leading(t, a.Cluster, h)]
	pid, err := a.Running(leader).ChildPID("control-plane")
	if err != nil {
		t.Fatal(err)
	}
	other := a.Servers[(leading(t, a.Cluster, h)+1)%len(a.Servers)].For(t)
	client, err := a.Client(other, netip.AddrPortFrom(other.IP, 6443).String())
	if err != nil {
		t.Fatal(err)
	}
	watched, err := client.CoreV1().Secrets("kube-system").Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=coracle-acme-challenges"})
	if err != nil {
		t.Fatal(err)
	}
	defer watched.Stop()
	before := a.server.Count("Added order")
	other.Apply(certified("killed", "killed.acme.test"))
	select {
	case <-watched.ResultChan():
	case <-time.After(time.Minute):
		t.Fatal("nothing is validated")
	}
	began := time.Now()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for _, s := range a.Servers {
		hosts.Eventually(t, time.Minute, func() error { return a.handshake(t, s, "killed.acme.test", nil) })
	}
	t.Logf("all servers have the certificate %.1f s after the server that asked was killed", time.Since(began).Seconds())
	other.Kubectl("delete", "ingress", "killed")
	a.AwaitHealthy(began, time.Minute)
	if n := a.server.Count("Added order") - before; n > 2 { // the other one is a renewal
		t.Errorf("%d orders", n)
	}
	issued, placed := a.server.Count("Issued certificate serial"), a.server.Count("Added order")
	if placed > issued+2 { // one for the host that is wrong, and a renewal that goes on
		t.Errorf("%d orders for %d certificates", placed, issued)
	}
}

// testTold: doctor on the server that leads says what fails, and no log has a key.
func (a *acme) testTold(t *testing.T, h *hosts.Host) {
	leader := a.Servers[leading(t, a.Cluster, h)]
	hosts.Eventually(t, 30*time.Second, func() error {
		out, _ := leader.TryCoracle("doctor")
		if !strings.Contains(out, "no certificate for Secret default/wrong: ") || strings.Contains(out, "Secret default/web") {
			return errors.New(out)
		}
		return nil
	})
	for _, s := range a.Servers {
		if log := a.Running(s).Log(); strings.Contains(log, "PRIVATE KEY") {
			t.Errorf("the log of %s has a private key", s.Name)
		}
	}
}

// testReflected: nobody gets an answer below the path of challenges that coracle did not mean for an ACME server.
func (a *acme) testReflected(t *testing.T) {
	for _, s := range a.Servers {
		client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DialContext: s.Dial, DisableKeepAlives: true}}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.IP.String()+"/.well-known/acme-challenge/evil-token", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Host = "unknown.acme.test"
		answer, err := client.Do(request)
		if err != nil {
			t.Error(err)
			continue
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", s.Name, answer.Status)
		}
	}
}

// testRenewed: certificates are renewed, by whoever leads, with one order for each; a host that fails is not asked for again meanwhile.
func (a *acme) testRenewed(t *testing.T) {
	h := a.Servers[0].For(t)
	for _, s := range a.Servers {
		hosts.Eventually(t, acmeLife, func() error {
			if serial, err := a.serial(t, s); err != nil || len(a.serials) < 2 {
				return fmt.Errorf("%s serves certificate %s, %v", s.Name, serial, err)
			}
			return nil
		})
	}
	hosts.Eventually(t, 20*time.Second, func() error { // one may be under way
		var book struct{ Orders map[string][]time.Time }
		text := h.Kubectl("-n", "kube-system", "get", "secret", "coracle-acme", "-o", `go-template={{index .data "book.json" | base64decode}}`)
		if err := json.Unmarshal([]byte(text), &book); err != nil {
			return err
		}
		issued, placed := a.server.Count("Issued certificate serial"), a.server.Count("Added order")
		if issued < 2 || placed != issued+1 || len(book.Orders["default"]) != placed { // one for the host that is wrong
			return fmt.Errorf("%d orders for %d certificates; coracle knows of %v", placed, issued, book.Orders)
		}
		return nil
	})
	h.Kubectl("delete", "ingress", "web", "wrong", "taken")
	h.Kubectl("delete", "secret", "web", "taken", "killed")
	hosts.Eventually(t, 20*time.Second, func() error {
		for _, s := range a.Servers {
			if pid, err := a.Running(s).ChildPID("gateway"); err == nil {
				return fmt.Errorf("process %d of %s is left", pid, s.Name)
			}
		}
		return nil
	})
}
