package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
)

// guarded is an Ingress as it was written for ingress-nginx.
const guarded = `apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: guarded
  annotations:
    nginx.ingress.kubernetes.io/rewrite-target: /$2
    nginx.ingress.kubernetes.io/auth-type: basic
    nginx.ingress.kubernetes.io/auth-secret: guarded
    nginx.ingress.kubernetes.io/configuration-snippet: "more_set_headers 'X-A: b';"
spec: {rules: [{host: guarded.test, http: {paths: [{path: "/app(/|$)(.*)", pathType: ImplementationSpecific, backend: {service: {name: web, port: {name: http}}}}]}}]}
`

const routePolicy = `apiVersion: coracle.dev/v1
kind: RoutePolicy
metadata: {name: web}
spec:
  targetRefs: [{group: networking.k8s.io, kind: Ingress, name: web}]
  clients: {deny: [%q]}
`

// aGateway is one with a route and a policy for it.
const aGateway = `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: guarded}
spec: {gatewayClassName: coracle, listeners: [{name: http, port: 8084, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: guarded}
spec: {parentRefs: [{name: guarded}], hostnames: [route.test], rules: [{backendRefs: [{name: web, port: 80}]}]}
---
apiVersion: coracle.dev/v1
kind: RoutePolicy
metadata: {name: guarded}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: guarded}]
  basicAuth: {secretRef: {name: guarded}}
`

// testIngressPolicies: what the Gateway API has no field for, by annotations of ingress-nginx and by RoutePolicies. The Ingress web is there.
func testIngressPolicies(t *testing.T, g *ingresses) {
	port := ""
	ask := func(host, path, password string, status int, body string) {
		t.Helper()
		hosts.Eventually(t, 20*time.Second, func() error {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://%s%s%s", g.IP, port, path), nil)
			if err != nil {
				return err
			}
			request.Host = host
			if password != "" {
				request.SetBasicAuth("ann", password)
			}
			answer, err := g.client.Do(request)
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			if got, _ := io.ReadAll(answer.Body); answer.StatusCode != status || !strings.HasPrefix(string(got), body) {
				return fmt.Errorf("%s%s: %s %q", host, path, answer.Status, got)
			}
			return nil
		})
	}
	told := func(want string) {
		t.Helper()
		hosts.Eventually(t, 10*time.Second, func() error {
			if out := g.Kubectl("get", "events", "--field-selector=involvedObject.name=guarded", "-o", "jsonpath={.items[*].message}"); !strings.Contains(out, want) {
				return fmt.Errorf("the Events are %q", out)
			}
			return nil
		})
	}
	g.Apply(guarded)
	ask("guarded.test", "/app/hostname", "", http.StatusServiceUnavailable, "")
	told("there is no Secret default/guarded")
	told("snippets of nginx's configuration are not read")
	g.Kubectl("create", "secret", "generic", "guarded", "--from-literal=auth=ann:$apr1$lZL6V/ci$PR6QJXkRFUzdUuaYcwrI//")
	ask("guarded.test", "/app/hostname", "", http.StatusUnauthorized, "")
	ask("guarded.test", "/APP/hostname", "wrong", http.StatusUnauthorized, "")
	ask("guarded.test", "/app/hostname", "secret", http.StatusOK, "web-")
	g.Kubectl("delete", "secret", "guarded")
	ask("guarded.test", "/app/hostname", "secret", http.StatusServiceUnavailable, "")
	g.Kubectl("delete", "ingress", "guarded", "--wait=false")

	if err := os.WriteFile(g.Path("/tmp/policy.yaml"), fmt.Appendf(nil, routePolicy, "nobody"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := g.TryCoracle("kubectl", "create", "--dry-run=server", "-f", "/tmp/policy.yaml"); err == nil || !strings.Contains(err.Error(), "must be a network or an address") {
		t.Errorf("a policy for nobody: %v", err)
	}
	g.Apply(fmt.Sprintf(routePolicy, "0.0.0.0/0"))
	ask("web.test", "/hostname", "", http.StatusForbidden, "")
	hosts.Eventually(t, 10*time.Second, func() error {
		if out := g.Kubectl("get", "routepolicy", "web", "-o", "jsonpath={.status.ancestors[*].conditions[*].reason}"); out != "Accepted" {
			return fmt.Errorf("its status is %q", out)
		}
		return nil
	})
	g.Apply(fmt.Sprintf(routePolicy, "192.0.2.0/24"))
	ask("web.test", "/hostname", "", http.StatusOK, "web-")
	g.Kubectl("delete", "routepolicy", "web")

	testNoGatewayAPI(t, g)
	g.Coracle("gateway-api")
	g.Apply(aGateway)
	port = ":8084"
	ask("route.test", "/hostname", "", http.StatusServiceUnavailable, "") // there is no Secret
	g.Kubectl("create", "secret", "generic", "guarded", "--from-literal=auth=ann:$apr1$lZL6V/ci$PR6QJXkRFUzdUuaYcwrI//")
	ask("route.test", "/hostname", "", http.StatusUnauthorized, "")
	ask("route.test", "/hostname", "secret", http.StatusOK, "web-")
	g.Kubectl("delete", "gateway/guarded", "httproute/guarded", "routepolicy/guarded", "secret/guarded")
}
