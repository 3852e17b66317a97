package e2e

import (
	"testing"

	"github.com/coracle-dev/coracle/test/hosts"
)

// testIngressClasses: Ingresses of other controllers' classes are served if the server is told so, a Service of type LoadBalancer keeps the port that it has,
// and with --disable=gateway nothing is served.
func testIngressClasses(t *testing.T, h *hosts.Host, s *hosts.Server) *hosts.Server {
	answers := func(host, want string) {
		t.Helper()
		expect(t, want, func() (string, error) {
			out, _ := h.Try("curl", "--silent", "--max-time", "5", "--output", "/dev/null", "--write-out", "code %{http_code}", "--header", "Host: "+host, "http://127.0.0.1/")
			return out, nil
		})
	}
	h.Kubectl("create", "service", "loadbalancer", "holder", "--tcp=80:80") // without a pod, so its port is taken by nobody else
	h.Kubectl("create", "ingress", "a", "--class=nginx", "--rule=nginx.test/*=missing:80")
	h.Kubectl("create", "ingress", "b", "--class=traefik", "--rule=traefik.test/*=missing:80")
	s = restarted(t, h, s, "--ingress-classes=nginx,traefik")
	expect(t, "Service default/holder of type LoadBalancer has port 80", func() (string, error) {
		return h.TryCoracle("kubectl", "get", "events", "--field-selector=reason=PortInUse", "-o", "jsonpath={.items[*].message}")
	})
	answers("nginx.test", "code 000")
	expect(t, "coracle.dev/gateway", func() (string, error) {
		return h.TryCoracle("kubectl", "get", "ingressclass", "nginx", "-o", "jsonpath={.spec.controller}")
	})
	h.Kubectl("delete", "service", "holder")
	for _, host := range []string{"nginx.test", "traefik.test"} {
		answers(host, "code 503") // its Service is missing
	}
	s = restarted(t, h, s, "--ingress-classes=nginx,traefik", "--disable=gateway")
	answers("nginx.test", "code 000")
	h.Kubectl("delete", "ingress", "a", "b")
	h.Kubectl("delete", "ingressclass", "nginx", "traefik")
	return s
}
