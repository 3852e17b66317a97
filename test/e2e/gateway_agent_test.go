package e2e

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	certutil "k8s.io/client-go/util/cert"

	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/test/hosts"
)

// testGatewayAgent: an agent serves Ingresses while an administrator says so. Before and after that nothing can be had with its keys, and it cannot say so itself.
func testGatewayAgent(t *testing.T, c *hosts.Cluster) {
	server, agent := c.Servers[0], c.Agents[0]
	cert, key, err := certutil.GenerateSelfSignedCertKey("edge.test", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	server.Kubectl("create", "namespace", "edge")
	server.Apply(fmt.Sprintf(`
apiVersion: v1
kind: Secret
type: kubernetes.io/tls
metadata: {name: edge, namespace: edge}
data: {tls.crt: %s, tls.key: %s}
---
apiVersion: v1
kind: Service
metadata: {name: edge, namespace: edge}
spec: {selector: {app: none}, ports: [{port: 80}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: edge, namespace: edge}
spec:
  tls: [{hosts: [edge.test], secretName: edge}]
  rules: [{host: edge.test, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: edge, port: {number: 80}}}}]}}]
`, base64.StdEncoding.EncodeToString(cert), base64.StdEncoding.EncodeToString(key)))
	serves := func(h *hosts.Host) error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		conn, err := server.Dial(ctx, "tcp", net.JoinHostPort(h.IP.String(), "443"))
		if err != nil {
			return err
		}
		defer conn.Close()
		secured := tls.Client(conn, &tls.Config{ServerName: "edge.test", InsecureSkipVerify: true})
		if err := secured.HandshakeContext(ctx); err != nil {
			return err
		}
		if names := secured.ConnectionState().PeerCertificates[0].DNSNames; len(names) == 0 || names[0] != "edge.test" {
			return fmt.Errorf("the certificate is for %v", names)
		}
		return nil
	}
	keys := func() (string, error) { // with what the machine has
		out, err := agent.Command(hosts.Bin(t), "kubectl", "--kubeconfig=/var/lib/coracle/node/etc/node.kubeconfig", "get", "--raw", "/coracle/v1/gateway").CombinedOutput()
		return string(out), err
	}
	nothing := func(when string) {
		t.Helper()
		if out, err := keys(); err == nil || !strings.Contains(out, "(Forbidden)") || strings.Contains(out, "PRIVATE KEY") {
			t.Errorf("%s: %v, %.300s", when, err, out)
		}
	}
	published := func() string {
		return server.Kubectl("get", "ingress", "-n", "edge", "edge", "-o", "jsonpath={.status.loadBalancer.ingress[*].ip}")
	}
	hosts.Eventually(t, time.Minute, func() error { return serves(server) })
	nothing("without the label")
	if err := serves(agent); err == nil {
		t.Error("an agent serves without the label")
	}
	thief{agent, hosts.Bin(t), server.IP.String()}.refused(t, "", "is not allowed to modify labels", "label", "node", agent.Name, kube.GatewayLabel+"=true")

	began := time.Now()
	server.Kubectl("label", "node", agent.Name, kube.GatewayLabel+"=true")
	hosts.Eventually(t, time.Minute, func() error { return serves(agent) })
	t.Logf("the agent serves %.1f s after it got the label", time.Since(began).Seconds())
	hosts.Eventually(t, 30*time.Second, func() error { return contains("the addresses", published(), agent.IP.String()) })
	if out, err := keys(); err != nil || !strings.Contains(out, "PRIVATE KEY") {
		t.Errorf("with the label: %v, %.300s", err, out)
	}

	server.Kubectl("label", "node", agent.Name, kube.GatewayLabel+"-")
	nothing("after the label was removed")
	hosts.Eventually(t, 30*time.Second, func() error {
		if err := serves(agent); err == nil {
			return errors.New("the agent still serves")
		}
		if got := published(); strings.Contains(got, agent.IP.String()) || !strings.Contains(got, server.IP.String()) {
			return fmt.Errorf("the addresses are %s", got)
		}
		if left := agent.Run("find", "/run/coracle/gateway/files", "-type", "f"); left != "" {
			return fmt.Errorf("%s is left", left)
		}
		return nil
	})
	server.Kubectl("delete", "namespace", "edge")
}
