package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
)

// gatewayAddresses are a pool for Gateways that ask for it, in TestThreeServers, of one address.
const (
	ownAddress       = "172.30.0.210"
	gatewayAddresses = "--lb-pool=gateways:manual=" + ownAddress
)

// testGatewayAddress: a Gateway has an address of a pool, at which one of the servers serves it, and nothing else of that machine. Another server takes over when the
// machine loses power, and so it does when its gateway has ended.
func testGatewayAddress(t *testing.T, c *hosts.Cluster) {
	address := netip.MustParseAddr(ownAddress)
	api := c.Servers[0]
	applyGatewayAPI(t, api)
	api.Apply(page)
	api.Apply(`
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: coracle}
spec: {controllerName: coracle.dev/gateway}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: page, namespace: page}
spec: {gatewayClassName: coracle, infrastructure: {annotations: {metallb.io/address-pool: gateways}}, listeners: [{name: http, port: 8000, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: page, namespace: page}
spec: {parentRefs: [{name: page}], rules: [{backendRefs: [{name: page, port: 80}]}]}
`)
	hosts.Eventually(t, 30*time.Second, func() error {
		got := api.Kubectl("get", "gateway", "-n", "page", "page", "-o", "jsonpath={.status.addresses[*].value}")
		return contains("the addresses", got, address.String())
	})
	outside := hosts.New(t, c.Wire, "visitor", hosts.Options{})
	at := awaitCarrier(t, c.Servers, address, 30*time.Second)
	answers := func() error {
		client := &http.Client{Timeout: 300 * time.Millisecond, Transport: &http.Transport{DialContext: outside.Dial, DisableKeepAlives: true}}
		answer, err := client.Get(fmt.Sprintf("http://%s:8000/", address))
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return errors.New(answer.Status)
		}
		return nil
	}
	hosts.Eventually(t, time.Minute, answers)
	for _, h := range c.Servers { // only at its own address
		if out, err := outside.Get(fmt.Sprintf("http://%s:8000/", h.IP)); err == nil {
			t.Errorf("it is served at %s too: %s", h.IP, out)
		}
	}
	for _, port := range []string{"10250", "6443", "80"} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if conn, err := outside.Dial(ctx, "tcp", net.JoinHostPort(address.String(), port)); err == nil {
			conn.Close()
			t.Errorf("port %s of node %s is open at %s", port, at.Name, address)
		}
		cancel()
	}
	api.Kubectl("create", "service", "clusterip", "thief", "--tcp=8000")
	if _, err := api.TryCoracle("kubectl", "patch", "service", "thief", "--patch", `{"spec": {"externalIPs": ["`+address.String()+`"]}}`); err == nil || !strings.Contains(err.Error(), "belongs to Gateway page/page") {
		t.Errorf("another namespace takes the address: %v", err)
	}
	api.Kubectl("delete", "service", "thief")

	accepts := func() error { // an answer may take longer, as the pod may have been on the server that dies
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		conn, err := outside.Dial(ctx, "tcp", netip.AddrPortFrom(address, 8000).String())
		if err == nil {
			conn.Close()
		}
		return err
	}
	at.Kill()
	took := unreachable(t, time.Minute, accepts)
	t.Logf("the Gateway accepts connections %.2f s after its server lost power", took.Seconds())
	if took > 3*time.Second {
		t.Errorf("it took %s", took)
	}
	c.Boot(at)
	c.AwaitHealthy(time.Now(), 2*time.Minute)
	api.Kubectl("delete", "namespace", "page")
	hosts.Eventually(t, time.Minute, func() error {
		if names := carriers(c.Servers, address); len(names) > 0 {
			return fmt.Errorf("%v still have %s", names, address)
		}
		return nil
	})
}

// applyGatewayAPI defines the kinds of the Gateway API.
func applyGatewayAPI(t *testing.T, h *hosts.Host) {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api").Output()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "config", "crd", "standard", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("the module has no definitions: %v", err)
	}
	var all []byte
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(append(all, "---\n"...), data...)
	}
	const inside = "/run/gateway-api.yaml"
	if err := os.WriteFile(h.Path(inside), all, 0o600); err != nil {
		t.Fatal(err)
	}
	h.Kubectl("apply", "--server-side", "-f", inside)
	h.Kubectl("wait", "--for=condition=Established", "crd/gatewayclasses.gateway.networking.k8s.io", "crd/gateways.gateway.networking.k8s.io", "crd/httproutes.gateway.networking.k8s.io", "--timeout=1m")
}
