package e2e

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
)

// testIngress: Ingresses are served by a process that is there while there is one. The Service web has two pods.
func testIngress(t *testing.T, h *hosts.Host, s *hosts.Server) {
	if pid, err := s.ChildPID("gateway"); err == nil {
		t.Errorf("process %d serves nothing", pid)
	}
	if value := h.Kubectl("get", "ingressclass", "coracle", "-o", `jsonpath={.metadata.annotations.ingressclass\.kubernetes\.io/is-default-class}`); value != "true" {
		t.Errorf("the default class is said to be %q", value)
	}
	g := &ingresses{Host: h, client: &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DialContext: h.Dial, DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}}
	h.Apply(ingress("web", "web.test", "/"))
	began := time.Now()
	g.await(t, "http", "web.test", http.StatusOK, "web-")
	t.Logf("the first answer came after %s", time.Since(began))
	pid, err := s.ChildPID("gateway")
	if err != nil {
		t.Fatal(err)
	}
	testGatewayConfined(t, g, pid)

	hosts.Eventually(t, 10*time.Second, func() error {
		if got := h.Kubectl("get", "ingress", "web", "-o", "jsonpath={.status.loadBalancer.ingress[*].ip}"); got != h.IP.String() {
			return fmt.Errorf("its address is %q", got)
		}
		return nil
	})
	g.await(t, "http", "other.test", http.StatusNotFound, "nothing serves")
	g.await(t, "https", "web.test", http.StatusOK, "web-")
	if subject := g.subject; !strings.Contains(subject, "no certificate") {
		t.Errorf("before there is a Secret the certificate is %q", subject)
	}
	if metrics := h.Kubectl("get", "--raw", "/metrics"); !strings.Contains(metrics, `coracle_gateway_requests_total{code="200",kind="Ingress",name="web",namespace="default"}`) {
		t.Error("the requests are not among the metrics of the server")
	}
	testIngressOfAnother(t, g)
	t.Run("upstream", func(t *testing.T) { testIngressUpstream(t, h.For(t)) })
	testIngressPolicies(t, g)

	began = time.Now()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	g.await(t, "http", "web.test", http.StatusOK, "web-")
	t.Logf("it answers %s after it was killed", time.Since(began))

	h.Kubectl("delete", "ingress", "web", "--wait=false")
	hosts.Eventually(t, 10*time.Second, func() error {
		if pid, err := s.ChildPID("gateway"); err == nil {
			return fmt.Errorf("process %d is left", pid)
		}
		if conn, err := h.Dial(t.Context(), "tcp", h.IP.String()+":80"); err == nil {
			conn.Close()
			return errors.New("port 80 is left")
		}
		return nil
	})
	for _, name := range []string{"config.json", "endpoints.json"} {
		if _, err := os.Stat(h.Path("/run/coracle/gateway/files/" + name)); err == nil {
			t.Errorf("%s is left", name)
		}
	}
	testGatewayAPI(t, g, s)
}

// testGatewayConfined: the process has one capability, and no other user reads the keys of its certificates.
func testGatewayConfined(t *testing.T, g *ingresses, pid int) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Uid:\t60974\t60974\t60974\t60974", "CapPrm:\t0000000000000400", "CapEff:\t0000000000000400", "CapBnd:", "NoNewPrivs:\t1", "Seccomp:\t2", "Groups:\t \n"} {
		if !strings.Contains(string(status), want) {
			t.Errorf("not %q in %s", want, status)
		}
	}
	if entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/root", pid)); err != nil || len(entries) != 2 {
		t.Errorf("it sees %v, %v", entries, err)
	}
	const files = "/run/coracle/gateway/files/"
	for script, user := range map[string]string{
		"cat " + files + "config.json":         "65534", // anybody
		"ls " + files:                          "65534",
		"echo > " + files + "config.json":      "60974", // the gateway itself
		"touch " + files + "x":                 "60974",
		"cat /run/coracle/config.json":         "60974",
		"rm /run/coracle/gateway/gateway.sock": "60974",
		"cat /run/coracle/control-plane/*":     "60974",
	} {
		if out, err := g.Try("setpriv", "--reuid="+user, "--regid="+user, "--clear-groups", "sh", "-c", script); err == nil {
			t.Errorf("user %s: %s succeeded: %s", user, script, out)
		}
	}
	out, err := g.Try("setpriv", "--reuid=60974", "--regid=60974", "--clear-groups", "cat", files+"config.json")
	if err != nil || !strings.Contains(out, "web.test") {
		t.Errorf("the gateway's user: %s %v", out, err)
	}
}

// testIngressOfAnother: in another namespace nobody takes a host, and people are told.
func testIngressOfAnother(t *testing.T, g *ingresses) {
	g.Kubectl("create", "namespace", "thief")
	g.Apply(strings.Replace(ingress("web", "web.test", "/hostname"), "{name: web", "{namespace: thief, name: web", 1))
	hosts.Eventually(t, 10*time.Second, func() error {
		out := g.Kubectl("get", "events", "-n", "thief", "-o", "jsonpath={.items[*].message}")
		if !strings.Contains(out, "web.test belongs to namespace default") {
			return fmt.Errorf("the Events are %q", out)
		}
		return nil
	})
	g.await(t, "http", "web.test", http.StatusOK, "web-")
	g.Kubectl("delete", "namespace", "thief", "--wait=false")
	g.Kubectl("delete", "ingress", "-n", "thief", "web", "--ignore-not-found", "--wait=false")
}

func ingress(name, host, path string) string {
	return fmt.Sprintf(`apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: %s}
spec: {rules: [{host: %s, http: {paths: [{path: %s, pathType: Prefix, backend: {service: {name: web, port: {name: http}}}}]}}]}
`, name, host, path)
}

// ingresses are asked from the host's network.
type ingresses struct {
	*hosts.Host
	client  *http.Client
	subject string // of the last certificate
}

// await asks for /hostname until the answer has the status, and begins with a text.
func (g *ingresses) await(t *testing.T, scheme, host string, status int, body string) {
	t.Helper()
	hosts.Eventually(t, 30*time.Second, func() error {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("%s://%s/hostname", scheme, g.IP), nil)
		if err != nil {
			return err
		}
		request.Host = host
		answer, err := g.client.Do(request)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		got, _ := io.ReadAll(answer.Body)
		if answer.TLS != nil {
			g.subject = answer.TLS.PeerCertificates[0].Subject.CommonName
		}
		if answer.StatusCode != status || !strings.HasPrefix(string(got), body) {
			return fmt.Errorf("%s: %s %q", host, answer.Status, got)
		}
		return nil
	})
}
