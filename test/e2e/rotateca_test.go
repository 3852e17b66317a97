package e2e

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/coracle-dev/coracle/test/hosts"
)

// testRotateCA replaces all authorities while Secrets are written and read. It returns a token that the former key has signed.
func testRotateCA(t *testing.T, c *hosts.Cluster) string {
	server := c.Servers[0]
	before := server.Coracle("kubectl", "get", "cm", "kube-root-ca.crt", "-o", "jsonpath={.data}")
	token := strings.TrimSpace(server.Kubectl("create", "token", "default"))
	load := startSecretsLoad(t, c, c.Servers...)
	defer func() { server.Kubectl("delete", "secrets", "--all") }()
	began := time.Now()
	second := c.Servers[len(c.Servers)-1].Command(hosts.Bin(t), "certificate", "rotate-ca") // one of the two waits, or says that the other one runs
	if err := second.Start(); err != nil {
		t.Fatal(err)
	}
	hosts.Eventually(t, time.Minute, func() error {
		out, err := server.TryCoracle("certificate", "rotate-ca")
		if err != nil && !strings.Contains(err.Error(), "are being changed by") {
			t.Fatal(err)
		}
		t.Log(out)
		return err
	})
	_ = second.Wait()
	t.Logf("servers sign with the new authorities after %.1f s", time.Since(began).Seconds())
	for _, h := range c.Servers {
		hosts.Eventually(t, 30*time.Second, h.FormerlySigned)
	}
	hosts.Eventually(t, 30*time.Second, func() error {
		if server.Kubectl("get", "cm", "kube-root-ca.crt", "-o", "jsonpath={.data}") == before {
			return errors.New("kube-root-ca.crt is the former one")
		}
		return nil
	})
	for _, h := range c.Servers {
		if err := asToken(t, c, h, token); err != nil {
			t.Errorf("%s: with a token that the former key signed: %v", h.Name, err)
		}
		if err := asToken(t, c, h, strings.TrimSpace(server.Kubectl("create", "token", "default"))); err != nil {
			t.Errorf("%s: with a token that the new key signed: %v", h.Name, err)
		}
		h.Coracle("wait", "--timeout", "1m")
	}
	load.end(t)
	return token
}

// asToken asks a server who the owner of a token is.
func asToken(t *testing.T, c *hosts.Cluster, h *hosts.Host, token string) error {
	t.Helper()
	config, err := c.Config(h, hosts.OwnAPI)
	if err != nil {
		t.Fatal(err)
	}
	config = rest.AnonymousClientConfig(config)
	config.BearerToken = token
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	who, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err == nil && who.Status.UserInfo.Username != "system:serviceaccount:default:default" {
		err = fmt.Errorf("it is %s", who.Status.UserInfo.Username)
	}
	return err
}

// testFinishCA has the former authorities dropped. The administrator's former kubeconfig and tokens of the former key are refused then.
func testFinishCA(t *testing.T, c *hosts.Cluster, token string) {
	server := c.Servers[0]
	config, err := c.Config(server, hosts.OwnAPI)
	if err != nil {
		t.Fatal(err)
	}
	load := startSecretsLoad(t, c, c.Servers...)
	defer func() { server.Kubectl("delete", "secrets", "--all") }()
	hosts.Eventually(t, 30*time.Second, func() error { // servers report every ten seconds
		_, err := server.TryCoracle("certificate", "rotate-ca", "--finish")
		if err == nil || !strings.Contains(err.Error(), "  system:serviceaccount:default:default (JTI=") || !strings.Contains(err.Error(), "a token, from e2e.test") {
			return fmt.Errorf("who uses the former authorities is not named: %v", err)
		}
		return nil
	})
	t.Log(server.Coracle("certificate", "rotate-ca", "--finish", "--force"))
	load.end(t)
	for _, h := range c.Servers {
		hosts.Eventually(t, 30*time.Second, func() error { // verified tokens are kept for ten seconds
			if err := asToken(t, c, h, token); !apierrors.IsUnauthorized(err) {
				return fmt.Errorf("%s: with a token of the former key: %v", h.Name, err)
			}
			return nil
		})
		h.Coracle("wait", "--timeout", "1m")
	}
	if _, err := kubernetes.NewForConfigOrDie(config).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("with the administrator's present kubeconfig: %v", err)
	}
}

// testAuthorities replaces the authorities of three servers, with commands that are killed and two at once.
func testAuthorities(t *testing.T, c *hosts.Cluster) {
	for i, after := range []time.Duration{200 * time.Millisecond, 3 * time.Second} {
		killed, err := c.Servers[i].KillCoracle(after, "certificate", "rotate-ca")
		t.Logf("killed after %s: %t, %v", after, killed, err)
		c.Unlock(c.Servers[i])
	}
	files := c.Servers[1].Path("/var/lib/coracle/server/pki/etcd/peer")
	former, err := tls.LoadX509KeyPair(files+".crt", files+".key")
	if err != nil {
		t.Fatal(err)
	}
	token := testRotateCA(t, c)
	if ended(asPeer(t, c, former)) {
		t.Error("a certificate of the former authority was refused before --finish")
	}
	testFinishCA(t, c, token)
	hosts.Eventually(t, 30*time.Second, func() error {
		if !ended(asPeer(t, c, former)) {
			return errors.New("etcd takes a certificate of the former authority")
		}
		return nil
	})
}

// asPeer connects to the etcd of the first server from the second one.
func asPeer(t *testing.T, c *hosts.Cluster, cert tls.Certificate) *tls.Conn {
	t.Helper()
	raw, err := c.Servers[1].Dial(t.Context(), "tcp", net.JoinHostPort(c.Servers[0].IP.String(), "2380"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { raw.Close() })
	conn := tls.Client(raw, &tls.Config{Certificates: []tls.Certificate{cert}, InsecureSkipVerify: true})
	if err := conn.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return conn
}

// ended reports whether the other side has closed a connection. etcd does that after five seconds if nobody speaks.
func ended(conn *tls.Conn) bool {
	_ = conn.SetReadDeadline(time.Now().Add(time.Second))
	_, err := conn.Read(make([]byte, 1))
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

// testAwayDuringRotation: an agent that was off while its cluster's authorities were replaced comes back without a token, and a new one joins with a token that
// was printed before, and starts with it again.
func testAwayDuringRotation(t *testing.T, c *hosts.Cluster) {
	server, agent := c.Servers[0], c.Agents[0]
	late := hosts.New(t, c.Wire, "late", hosts.Options{})
	if err := os.WriteFile(late.Path("/tmp/token"), []byte(server.Coracle("token", "create")), 0o600); err != nil {
		t.Fatal(err)
	}
	server.Coracle("certificate", "rotate-ca")
	server.Coracle("certificate", "rotate-ca", "--finish", "--force")
	began := time.Now()
	s := agent.StartAgent("--token-file=/etc/coracle/gone")
	former := []string{"--server=https://" + server.IP.String() + ":6443", "--token-file=/tmp/token"}
	joined := late.StartAgent(former...)
	agent.Coracle("wait", "--timeout", "1m")
	t.Logf("back after %.1f s", time.Since(began).Seconds())
	late.Coracle("wait", "--timeout", "1m")
	t.Logf("joined after %.1f s", time.Since(began).Seconds())
	if err := joined.Stop(); err != nil {
		t.Error(err)
	}
	joined = late.StartAgent(former...)
	hosts.Eventually(t, time.Minute, agent.FormerlySigned)
	if strings.Contains(s.Log(), "joined the cluster") {
		t.Error("it joined again")
	}
	late.Coracle("wait", "--timeout", "1m")
	t.Logf("started again after %.1f s", time.Since(began).Seconds())
	for _, one := range []*hosts.Server{s, joined} {
		if err := one.Stop(); err != nil {
			t.Error(err)
		}
	}
}
