package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mholt/acmez/v3"
	protocol "github.com/mholt/acmez/v3/acme"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/translate"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/network/gateway"
	"github.com/coracle-dev/coracle/test/acmeserver"
	"github.com/coracle-dev/coracle/test/registries"
)

// secureGatewayOf does the same for TLS-ALPN-01.
func secureGatewayOf(t *testing.T, client kubernetes.Interface) (port int) {
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{NextProtos: []string{acmez.ACMETLS1Protocol}, GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		for _, c := range challengesIn(t, client) {
			if c.Host == hello.ServerName {
				return acmez.TLSALPN01ChallengeCert(protocol.Challenge{Token: c.Token, KeyAuthorization: c.Answer, Identifier: protocol.Identifier{Type: "dns", Value: c.Host}})
			}
		}
		return nil, errors.New("no challenge")
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.(*tls.Conn).HandshakeContext(t.Context())
			conn.Close()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

func challengesIn(t *testing.T, client kubernetes.Interface) (all []gateway.Challenge) {
	secret, err := client.CoreV1().Secrets("kube-system").Get(t.Context(), challengesSecret, metav1.GetOptions{})
	if err == nil {
		_ = json.Unmarshal(secret.Data[challengesKey], &all)
	}
	return all
}

// gatewayOf answers challenges as a gateway whose configuration comes from the API.
func (c *certificatesOf) gatewayOf(t *testing.T) (port int) {
	client := c.client
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if validates := c.validates; validates != nil && strings.Contains(r.UserAgent(), "Pebble") {
			validates()
		}
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		for _, c := range challengesIn(t, client) {
			if c.Host == host && gateway.ChallengePath+c.Token == r.URL.Path {
				_, _ = io.WriteString(w, c.Answer)
			}
		}
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().(*net.TCPAddr).Port
}

// certificatesOf asks a real ACME server, with an API that is not real.
type certificatesOf struct {
	client *fake.Clientset
	server *acmeserver.Server
	acme   config.ACME
	port   int
	secure int
	nodes  []*corev1.Node

	validates func() // called before the ACME server gets an answer by HTTP-01
}

func newCertificates(t *testing.T) *certificatesOf {
	c := &certificatesOf{client: fake.NewClientset()}
	c.port, c.secure = c.gatewayOf(t), secureGatewayOf(t, c.client)
	authority := registries.NewAuthority(t, "of the ACME server")
	here := []string{"127.0.0.1"}
	c.server = acmeserver.Start(t, nil, netip.AddrPort{}, acmeserver.Options{
		HTTP: c.port, TLS: c.secure, Life: time.Hour, Authority: authority, Hosts: map[string][]string{"a.test": here, "b.test": here, "full.test": here, "taken.test": here},
	})
	c.acme = config.ACME{Email: "me@example.com", Server: c.server.Directory, CAFile: filepath.Join(t.TempDir(), "ca.crt")}
	if err := os.WriteFile(c.acme.CAFile, authority.PEM, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, address := range map[string]string{"server": "127.0.0.1", "cut-off": "127.0.0.9"} {
		c.nodes = append(c.nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		}})
	}
	return c
}

// leader returns what works on the server that leads.
func (c *certificatesOf) leader() *issuing {
	w := &issuing{Issuer: Issuer{Self: "server", ACME: c.acme, outcome: newOutcome()}, client: c.client, probes: newProbes("server"), blocked: blocked{}, awaited: awaited{}}
	w.probes.port, w.probes.secure, w.probes.own, w.probes.others = strconv.Itoa(c.port), strconv.Itoa(c.secure), time.Second, 0
	return w
}

func want(namespace, name string, hosts ...string) translate.Wanted {
	return translate.Wanted{Secret: types.NamespacedName{Namespace: namespace, Name: name}, Hosts: hosts,
		Owners: []corev1.ObjectReference{{Kind: "Ingress", Namespace: namespace, Name: name, UID: types.UID(name)}}}
}

// run works until there is nothing to do now.
func (c *certificatesOf) run(t *testing.T, w *issuing, wanted ...translate.Wanted) (again time.Time) {
	t.Helper()
	for {
		again, err := w.step(t.Context(), wanted, c.nodes)
		if err != nil {
			t.Fatal(err)
		}
		if again.IsZero() || time.Until(again) > time.Second {
			return again
		}
	}
}

// stored returns the certificate of a Secret.
func (c *certificatesOf) stored(t *testing.T, of translate.Wanted) *x509.Certificate {
	t.Helper()
	secret, err := c.client.CoreV1().Secrets(of.Secret.Namespace).Get(t.Context(), of.Secret.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	certificate := translate.CertificateOf(secret)
	if certificate.Problem != "" || certificate.Issuer != c.acme.Server || secret.Type != corev1.SecretTypeTLS {
		t.Fatalf("%+v of type %s", certificate, secret.Type)
	}
	return certificate.Leaf
}

func (c *certificatesOf) events(t *testing.T, of translate.Wanted) (out string) {
	t.Helper()
	events, err := c.client.CoreV1().Events(of.Secret.Namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		if e.InvolvedObject.Name == of.Secret.Name {
			out += e.Type + " " + e.Reason + ": " + e.Message + "\n"
		}
	}
	return out
}

// TestIssuer: certificates come into Secrets of those who want them, one order for each; nobody's trouble is another's.
func TestIssuer(t *testing.T) {
	c := newCertificates(t)
	taken, full, wrong, web := want("shop", "taken", "taken.test"), want("full", "full", "full.test"), want("shop", "wrong", "missing.test"), want("shop", "web", "a.test", "b.test")
	mine := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "taken"}, Data: map[string][]byte{"mine": []byte("yes")}, Type: corev1.SecretTypeOpaque}
	if _, err := c.client.CoreV1().Secrets("shop").Create(t.Context(), mine, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.client.PrependReactor("create", "secrets", func(action ktesting.Action) (bool, runtime.Object, error) {
		return action.GetNamespace() == "full", nil, errors.New("exceeded quota")
	})
	first := c.leader()
	again := c.run(t, first, full, taken, web, wrong)
	if wait := time.Until(again); wait < 30*time.Second || wait > time.Minute {
		t.Errorf("it looks again after %s", wait)
	}
	leaf := c.stored(t, web)
	if !slices.Equal(leaf.DNSNames, web.Hosts) {
		t.Errorf("a certificate for %s", leaf.DNSNames)
	}
	for name, told := range map[string]struct {
		of   translate.Wanted
		want []string
	}{
		"web":   {web, []string{"Normal CertificateOrdered: asking " + c.acme.Server + " for a certificate for a.test, b.test", "Normal CertificateIssued: Secret shop/web"}},
		"taken": {taken, []string{"Warning CertificateFailed", "Secret shop/taken of type Opaque was not made by coracle"}},
		"full":  {full, []string{"Warning CertificateFailed", "exceeded quota; it is tried again at "}},
		"wrong": {wrong, []string{"Warning CertificateFailed: no certificate for missing.test: ", "it is tried again at "}},
	} {
		for _, text := range told.want {
			if events := c.events(t, told.of); !strings.Contains(events, text) {
				t.Errorf("%s: no %q in %s", name, text, events)
			}
		}
	}
	if got, err := c.client.CoreV1().Secrets("shop").Get(t.Context(), "taken", metav1.GetOptions{}); err != nil || string(got.Data["mine"]) != "yes" || len(got.Data) != 1 {
		t.Errorf("another's Secret is %v, %v", got.Data, err)
	}
	var problems []string
	for _, p := range first.outcome.uncertified {
		problems = append(problems, p.Name)
	}
	if !slices.Equal(problems, []string{"full/full", "shop/taken", "shop/wrong"}) {
		t.Errorf("the problems are %s", problems)
	}
	orders := c.server.Count("Added order")
	web.Leaf, web.Issuer = leaf, c.acme.Server
	t.Run("another server leads", func(t *testing.T) {
		second := c.leader()
		c.run(t, second, full, taken, web, wrong)
		if n := c.server.Count("Added order"); n != orders || len(second.outcome.uncertified) != 3 {
			t.Errorf("%d further orders, %v", n-orders, second.outcome.uncertified)
		}
		more := want("shop", "more", "b.test")
		c.run(t, second, web, more)
		if n := c.server.Count("Added order"); n != orders { // b.test was asked for a moment ago
			t.Errorf("%d further orders", n-orders)
		}
		for h := range second.ledger.book.Hosts {
			delete(second.ledger.book.Hosts, h)
		}
		c.run(t, second, web, more)
		c.stored(t, more)
		if accounts := c.server.Count("There are now 2 accounts"); accounts != 0 {
			t.Error("it has another account")
		}
	})
	t.Run("somebody deletes the book", func(t *testing.T) {
		if err := c.client.CoreV1().Secrets("kube-system").Delete(t.Context(), ledgerSecret, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		orders := c.server.Count("Added order")
		first.ledger.read = time.Now().Add(-ledgerAge)
		c.run(t, first, wrong)
		if n := c.server.Count("Added order"); n != orders+1 || c.server.Count("There are now 2 accounts") != 1 {
			t.Errorf("%d further orders", n-orders)
		}
	})
	if _, err := c.client.CoreV1().Secrets("kube-system").Get(t.Context(), challengesSecret, metav1.GetOptions{}); err == nil {
		t.Error("challenges are left")
	}
}

// TestLeaderDies: a server that dies while the ACME server validates takes no answers with it. The next one goes on with its order.
func TestLeaderDies(t *testing.T) {
	c := newCertificates(t)
	web := want("shop", "web", "a.test")
	first, kill := context.WithCancel(t.Context())
	var leads atomic.Bool
	writes := make(chan struct{}, 100)
	c.client.PrependReactor("*", "secrets", func(action ktesting.Action) (bool, runtime.Object, error) {
		if leads.Load() && action.GetVerb() != "get" {
			writes <- struct{}{}
		}
		return false, nil, nil
	})
	c.validates = sync.OnceFunc(func() {
		kill()
		for range 2 { // when the second one comes, the first one is done
			select {
			case <-writes:
			case <-time.After(10 * time.Second):
				t.Error("the second server writes nothing")
			}
		}
	})
	if _, err := c.leader().step(first, []translate.Wanted{web}, c.nodes); !errors.Is(err, context.Canceled) {
		t.Fatalf("the first server ends with %v", err)
	}
	leads.Store(true)
	c.run(t, c.leader(), web)
	c.stored(t, web)
	if n := c.server.Count("Added order"); n != 1 {
		t.Errorf("%d orders", n)
	}
	if left := challengesIn(t, c.client); len(left) > 0 {
		t.Errorf("challenges are left: %v", left)
	}
}
