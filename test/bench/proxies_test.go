package bench

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
)

// measureProxies compares the gateway with Debian's nginx and Caddy on one host: connections that stay open, a body of 1 KB, and the same
// backend, another nginx. They take turns, because machines are noisy.
func measureProxies(t *testing.T, wire *hosts.Wire, runs int, r *results) {
	for _, program := range []string{"nginx", "caddy", "wrk"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%s is needed: apt-get install nginx-light caddy wrk", program)
		}
	}
	h := hosts.New(t, wire, "proxies", hosts.Options{})
	defer h.Kill()
	h.Start()
	h.Coracle("wait", "--timeout", "60s")
	write := func(name, content string) string {
		path := "/srv/" + name
		if err := os.WriteFile(h.Path(path), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	backend := fmt.Sprintf("%s:%d", h.IP, 9000)
	write("index.html", strings.Repeat("coracle\n", 128))
	h.Run("nginx", "-c", write("backend.conf", nginx("backend", "listen 9000; root /srv;")))
	h.Run("nginx", "-c", write("proxy.conf", nginx("proxy", "listen 9001; location / { proxy_pass http://backend; proxy_http_version 1.1; proxy_set_header Connection ''; proxy_set_header Host $host; }",
		"upstream backend { server "+backend+"; keepalive 128; }")))
	caddy := h.Command("caddy", "run", "--adapter", "caddyfile", "--config", write("Caddyfile", "{\n admin off\n}\n:9002 {\n reverse_proxy "+backend+" {\n  transport http {\n   keepalive_idle_conns_per_host 128\n  }\n }\n}\n"))
	if err := caddy.Start(); err != nil {
		t.Fatal(err)
	}
	measureFirstIngress(t, h, runs, r)
	proxies := []struct {
		name string
		port int
	}{{"nginx", 9001}, {"Caddy", 9002}, {"the gateway", 80}}
	for _, p := range proxies {
		hosts.Eventually(t, time.Minute, func() error {
			_, err := h.Try("curl", "--fail", "--silent", "--header", "Host: web.test", fmt.Sprintf("http://%s:%d/", h.IP, p.port))
			return err
		})
	}
	for range runs + 1 {
		for _, p := range proxies {
			out := h.Run("wrk", "--threads=1", "--connections=64", "--duration=5s", "--latency", "--header", "Host: web.test", fmt.Sprintf("http://%s:%d/", h.IP, p.port))
			if strings.Contains(out, "Non-2xx") || strings.Contains(out, "Socket errors") {
				t.Errorf("%s: %s", p.name, out)
			}
			r.add(p.name+": requests a second", "", 0, number(t, out, "Requests/sec:"))
			r.add(p.name+": p99", "ms", 0, p99(t, out))
		}
	}
}

// measureFirstIngress measures the time from sending the only Ingress to the API server until it is served, for which the gateway has to start. The last one stays.
func measureFirstIngress(t *testing.T, h *hosts.Host, runs int, r *results) {
	t.Helper()
	get := func() error {
		_, err := h.Try("curl", "--fail", "--silent", "--header", "Host: web.test", fmt.Sprintf("http://%s/", h.IP))
		return err
	}
	for run := range runs {
		if run > 0 {
			h.Kubectl("delete", "ingress", "web")
			hosts.Eventually(t, time.Minute, func() error {
				if get() == nil {
					return errors.New("the gateway answers still")
				}
				return nil
			})
		}
		began := time.Now()
		h.Apply(fmt.Sprintf(backendOutside, h.IP))
		hosts.Eventually(t, time.Minute, get)
		r.add("gateway: the first Ingress to its first answer", "s", 1.5, time.Since(began).Seconds())
	}
}

// p99 reads wrk's line such as "99%    1.23ms".
func p99(t *testing.T, out string) float64 {
	t.Helper()
	found := regexp.MustCompile(`(?m)^\s+99%\s+(\S+)`).FindStringSubmatch(out)
	if found == nil {
		t.Fatalf("wrk printed no p99: %s", out)
	}
	took, err := time.ParseDuration(found[1])
	if err != nil {
		t.Fatal(err)
	}
	return took.Seconds() * 1000
}

// nginx returns the configuration of a server with one worker per core, as Debian's, without a log of requests, as the gateway.
func nginx(name, server string, more ...string) string {
	return fmt.Sprintf("pid /srv/%s.pid; error_log /srv/%[1]s.log; worker_processes auto; events { worker_connections 1024; }\nhttp { access_log off; keepalive_requests 100000000; %s server { %s } }\n",
		name, strings.Join(more, " "), server)
}

// backendOutside is an Ingress whose backend is no pod.
const backendOutside = `
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {ports: [{port: 80, targetPort: 9000}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
endpoints: [{addresses: ["%s"], conditions: {ready: true}}]
ports: [{port: 9000, protocol: TCP}]
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web}
spec:
  rules:
  - host: web.test
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}
`
