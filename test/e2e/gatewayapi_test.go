package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
)

// testGatewayAPI: after coracle gateway-api, a Gateway with a route is served by a process that is there while there is one; a changed route is in
// force at once, and a user of one namespace makes routes, not Gateways. The Service web has two pods.
func testGatewayAPI(t *testing.T, g *ingresses, s *hosts.Server) {
	for _, hint := range []string{"is installed", "is installed"} { // the second time nothing changes
		if out := g.Coracle("gateway-api"); !strings.Contains(out, hint) {
			t.Errorf("coracle gateway-api: %s", out)
		}
	}
	hosts.Eventually(t, 10*time.Second, func() error {
		if got := g.Kubectl("get", "gatewayclass", "--ignore-not-found", "-o", "jsonpath={.items[*].status.conditions[?(@.type=='Accepted')].status}"); got != "True" {
			return fmt.Errorf("class coracle is accepted: %q", got)
		}
		return nil
	})
	began := time.Now()
	g.Apply(`apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: front}
spec:
  gatewayClassName: coracle
  listeners: [{name: http, port: 80, protocol: HTTP}, {name: api, port: 6443, protocol: TCP}]
---
` + httpRoute("gateway.test", "web"))
	g.await(t, "http", "gateway.test", http.StatusOK, "web-")
	t.Logf("the first answer came after %s", time.Since(began))
	hosts.Eventually(t, 10*time.Second, func() error {
		status := g.Kubectl("get", "gateway", "front", "-o", `jsonpath={.status.addresses[*].value} {range .status.listeners[*]}{.name}={.conditions[?(@.type=="Programmed")].status} {end}`)
		if want := g.IP.String() + " http=True api=False "; status != want {
			return fmt.Errorf("its status is %q, want %q", status, want)
		}
		return nil
	})
	g.Apply(httpRoute("changed.test", "web"))
	g.await(t, "http", "changed.test", http.StatusOK, "web-")
	g.await(t, "http", "gateway.test", http.StatusNotFound, "")
	testGatewayInfrastructure(t, g)
	g.Apply(httpRoute("changed.test", "none"))
	g.await(t, "http", "changed.test", http.StatusInternalServerError, "")
	hosts.Eventually(t, 10*time.Second, func() error {
		if out := g.Coracle("status"); !strings.Contains(out, "HTTPRoute default/web: at front: there is no Service default/none") {
			return fmt.Errorf("coracle status:\n%s", out)
		}
		return nil
	})

	g.Kubectl("create", "serviceaccount", "router")
	g.Kubectl("create", "rolebinding", "router", "--clusterrole=edit", "--serviceaccount=default:router")
	for resource, want := range map[string]string{"httproutes": "yes", "listenersets": "yes", "gateways": "no"} {
		out, _ := g.TryCoracle("kubectl", "auth", "can-i", "create", resource+".gateway.networking.k8s.io", "--as=system:serviceaccount:default:router")
		if strings.TrimSpace(out) != want {
			t.Errorf("role edit creates %s: %s", resource, out)
		}
	}

	g.Kubectl("delete", "gateway", "front")
	hosts.Eventually(t, 10*time.Second, func() error {
		if pid, err := s.ChildPID("gateway"); err == nil {
			return fmt.Errorf("process %d is left", pid)
		}
		if got := g.Kubectl("get", "httproute", "web", "-o", "jsonpath={.status.parents}"); got != "[]" {
			return errors.New("the route still says " + got)
		}
		return nil
	})
	g.Kubectl("delete", "httproute", "web")
}

func httpRoute(host, service string) string {
	return fmt.Sprintf(`apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web}
spec:
  parentRefs: [{name: front, sectionName: http}]
  hostnames: [%s]
  rules: [{backendRefs: [{name: %s, port: 80}]}]
`, host, service)
}

// testNoGatewayAPI: who applies a route before the definitions is told how to install them.
func testNoGatewayAPI(t *testing.T, g *ingresses) {
	apply := g.Command(hosts.Bin(t), "kubectl", "apply", "-f", "-")
	apply.Stdin = strings.NewReader(httpRoute("early.test", "web"))
	if out, err := apply.CombinedOutput(); err == nil || !strings.Contains(string(out), "run 'coracle gateway-api'") {
		t.Errorf("a route before the definitions: %v: %s", err, out)
	}
}

// testGatewayInfrastructure: pods reach a Gateway at the name of the Service that has the labels and annotations of spec.infrastructure, and it goes when nothing is named.
func testGatewayInfrastructure(t *testing.T, g *ingresses) {
	name := "gateways.gateway.networking.k8s.io/front"
	g.Kubectl("patch", name, "--type=merge", "-p", `{"spec": {"infrastructure": {"labels": {"team": "web"}, "annotations": {"example.org/about": "the front"}}}}`)
	hosts.Eventually(t, 10*time.Second, func() error {
		got := g.Kubectl("get", "service", "front-coracle", "--ignore-not-found", "-o", `jsonpath={.metadata.labels.team} {.metadata.annotations.example\.org/about} {.spec.clusterIP} {.spec.ports[*].port}`)
		return contains("the Service", got, "web the front None 6443 80")
	})
	const host = "front-coracle.default.svc.cluster.local"
	g.Apply(httpRoute(host, "web"))
	expect(t, "web-", func() (string, error) { return inClient(g.Host, "probe get http://"+host+"/hostname") })
	g.Kubectl("patch", name, "--type=merge", "-p", `{"spec": {"infrastructure": null}}`)
	hosts.Eventually(t, 10*time.Second, func() error {
		if got := g.Kubectl("get", "service,endpointslice", "-l", "gateway.networking.k8s.io/gateway-name=front", "-o", "name"); got != "" {
			return errors.New("there are still " + got)
		}
		return nil
	})
}
