package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
)

// upstreamIngress is a scenario of Kubernetes' ingress-controller-conformance: a request, and the Service that serves it if the status is 200.
type upstreamIngress struct {
	feature, scenario, method, url string
	status                         int
	service                        string
}

// upstreamRules are the scenarios of the features that have rules.
var upstreamRules = []upstreamIngress{
	{"host_rules", "TLS to a host", "GET", "https://foo.bar.com", 200, "foo-bar-com"},
	{"host_rules", "a host", "GET", "http://foo.bar.com", 200, "foo-bar-com"},
	{"host_rules", "another host", "GET", "http://subdomain.bar.com", 404, ""},
	{"host_rules", "a wildcard", "GET", "http://bar.foo.com", 200, "wildcard-foo-com"},
	{"host_rules", "a wildcard is one label", "GET", "http://baz.bar.foo.com", 404, ""},
	{"host_rules", "a wildcard is not no label", "GET", "http://foo.com", 404, ""},
	{"path_rules", "exact", "GET", "http://exact-path-rules/foo", 200, "foo-exact"},
	{"path_rules", "exact, with a slash behind", "GET", "http://exact-path-rules/foo/", 404, ""},
	{"path_rules", "exact, in upper case", "GET", "http://exact-path-rules/FOO", 404, ""},
	{"path_rules", "exact, another path", "GET", "http://exact-path-rules/bar", 404, ""},
	{"path_rules", "prefix", "GET", "http://prefix-path-rules/foo", 200, "foo-prefix"},
	{"path_rules", "prefix, with a slash behind", "GET", "http://prefix-path-rules/foo/", 200, "foo-prefix"},
	{"path_rules", "prefix, in upper case", "GET", "http://prefix-path-rules/FOO", 404, ""},
	{"path_rules", "the longest prefix", "GET", "http://prefix-path-rules/aaa/bbb", 200, "aaa-slash-bbb-prefix"},
	{"path_rules", "the longest prefix, below it", "GET", "http://prefix-path-rules/aaa/bbb/ccc", 200, "aaa-slash-bbb-prefix"},
	{"path_rules", "the shorter prefix", "GET", "http://prefix-path-rules/aaa/ccc", 200, "aaa-prefix"},
	{"path_rules", "prefix, half of a label", "GET", "http://prefix-path-rules/aaaccc", 404, ""},
	{"path_rules", "exact before prefix", "GET", "http://mixed-path-rules/foo", 200, "foo-exact"},
	{"path_rules", "prefix that ends in a slash, without it", "GET", "http://trailing-slash-path-rules/aaa/bbb", 200, "aaa-slash-bbb-slash-prefix"},
	{"path_rules", "prefix that ends in a slash", "GET", "http://trailing-slash-path-rules/aaa/bbb/", 200, "aaa-slash-bbb-slash-prefix"},
	{"path_rules", "exact that ends in a slash, without it", "GET", "http://trailing-slash-path-rules/foo", 404, ""},
	{"ingress_class", "a class that there is not", "GET", "http://ingress-class", 404, ""},
}

// upstreamDefaults are the scenarios of the default backend, ADDRESS being that of the server.
var upstreamDefaults = []upstreamIngress{
	{"default_backend", "GET", "GET", "http://my-host/", 200, "echo-service"},
	{"default_backend", "GET of a path", "GET", "http://my-host/sub-path", 200, "echo-service"},
	{"default_backend", "POST", "POST", "http://some-host/", 200, "echo-service"},
	{"default_backend", "PUT to the address", "PUT", "http://ADDRESS/resource", 200, "echo-service"},
	{"default_backend", "DELETE", "DELETE", "http://some-host/resource", 200, "echo-service"},
	{"default_backend", "PATCH", "PATCH", "http://my-host/resource", 200, "echo-service"},
}

// echoed is a request as an endpoint got it.
type echoed struct{ Endpoint, Method, Path, Host, Proto, Agent string }

// upstreamTest has what the scenarios need: Services without pods, whose endpoints are ports of this test on the server.
type upstreamTest struct {
	*hosts.Host
	client   *http.Client
	services map[string]string // by endpoint
}

// testIngressUpstream plays the scenarios of Kubernetes' ingress-controller-conformance, feature by feature.
func testIngressUpstream(t *testing.T, h *hosts.Host) {
	cert, key := selfSigned(t, "foo.bar.com")
	chain, _ := base64.StdEncoding.DecodeString(cert)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(chain)
	u := &upstreamTest{Host: h, services: map[string]string{}, client: &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots},
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			_, port, _ := net.SplitHostPort(address)
			return h.Dial(ctx, network, net.JoinHostPort(h.IP.String(), port))
		},
	}}}
	h.Kubectl("create", "namespace", "upstream")
	t.Cleanup(func() {
		h.Kubectl("delete", "ingress", "-n", "upstream", "--all")
		h.Kubectl("delete", "namespace", "upstream", "--wait=false")
	})
	manifest := fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {namespace: upstream, name: conformance-tls}\ntype: kubernetes.io/tls\ndata: {tls.crt: %s, tls.key: %s}\n", cert, key)
	for _, s := range upstreamRules {
		if s.service != "" && !strings.Contains(manifest, "name: "+s.service+"}") {
			manifest += u.service(t, s.service, 1)
		}
	}
	h.Apply(manifest + u.service(t, "echo-service", 10) +
		upstreamSpec("host-rules", "tls: [{hosts: [foo.bar.com], secretName: conformance-tls}], rules: ["+
			upstreamRule("*.foo.com", "Prefix / wildcard-foo-com")+", "+strings.Replace(upstreamRule("foo.bar.com", "Prefix / foo-bar-com"), "number: 8080", "name: http", 1)+"]") +
		upstreamSpec("path-rules", "rules: ["+strings.Join([]string{
			upstreamRule("exact-path-rules", "Exact /foo foo-exact"),
			upstreamRule("prefix-path-rules", "Prefix /foo foo-prefix", "Prefix /aaa/bbb aaa-slash-bbb-prefix", "Prefix /aaa aaa-prefix"),
			upstreamRule("mixed-path-rules", "Prefix /foo foo-prefix", "Exact /foo foo-exact"),
			upstreamRule("trailing-slash-path-rules", "Prefix /aaa/bbb/ aaa-slash-bbb-slash-prefix", "Exact /foo/ foo-exact"),
		}, ", ")+"]") +
		upstreamSpec("ingress-class", "ingressClassName: some-invalid-class-name, rules: ["+upstreamRule("ingress-class", "Prefix / foo-prefix")+"]"))
	u.address(t, "host-rules")
	u.address(t, "path-rules")
	u.play(t, upstreamRules)
	if got := h.Kubectl("get", "ingress", "-n", "upstream", "ingress-class", "-o", "jsonpath={.status.loadBalancer}"); got != "{}" {
		t.Errorf("the status of an Ingress of a class that there is not: %s", got)
	}
	h.Apply(upstreamSpec("default-backend", "defaultBackend: {service: {name: echo-service, port: {number: 8080}}}"))
	u.address(t, "default-backend")
	u.play(t, upstreamDefaults)
	t.Run("load_balancing: 100 requests to ten endpoints", func(t *testing.T) {
		seen := map[string]bool{}
		for range 100 {
			got, err := u.ask(t, upstreamIngress{method: "GET", url: "http://load-balancing", status: 200, service: "echo-service"})
			if err != nil {
				t.Fatal(err)
			}
			seen[got.Endpoint] = true
		}
		if len(seen) != 10 {
			t.Errorf("%d endpoints answered", len(seen))
		}
	})
}

// service returns the manifest of a Service with some endpoints.
func (u *upstreamTest) service(t *testing.T, name string, endpoints int) string {
	t.Helper()
	out := fmt.Sprintf("---\napiVersion: v1\nkind: Service\nmetadata: {namespace: upstream, name: %s}\nspec: {ports: [{name: http, port: 8080}]}\n", name)
	for i := range endpoints {
		listener := u.Listen("tcp", u.IP.String()+":0")
		endpoint := listener.Addr().String()
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Server", "echo") // which a proxy does not add
			_ = json.NewEncoder(w).Encode(echoed{endpoint, r.Method, r.URL.Path, r.Host, r.Proto, r.UserAgent()})
		}))
		server.Listener.Close()
		server.Listener = listener
		server.Start()
		t.Cleanup(server.Close)
		u.services[endpoint] = name
		_, port, _ := net.SplitHostPort(endpoint)
		out += fmt.Sprintf(`---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: upstream, name: %s-%d, labels: {kubernetes.io/service-name: %s}}
addressType: IPv4
ports: [{name: http, port: %s}]
endpoints: [{addresses: [%s]}]
`, name, i, name, port, u.IP)
	}
	return out
}

func upstreamSpec(name, spec string) string {
	return fmt.Sprintf("---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {namespace: upstream, name: %s}\nspec: {%s}\n", name, spec)
}

// upstreamRule is a rule for a host; each path is "TYPE PATH SERVICE".
func upstreamRule(host string, paths ...string) string {
	for i, p := range paths {
		f := strings.Fields(p)
		paths[i] = fmt.Sprintf("{pathType: %s, path: %s, backend: {service: {name: %s, port: {number: 8080}}}}", f[0], f[1], f[2])
	}
	return fmt.Sprintf("{host: %q, http: {paths: [%s]}}", host, strings.Join(paths, ", "))
}

// address waits until the status of an Ingress has the address of the server.
func (u *upstreamTest) address(t *testing.T, name string) {
	t.Helper()
	hosts.Eventually(t, 10*time.Second, func() error {
		if got := u.Kubectl("get", "ingress", "-n", "upstream", name, "-o", "jsonpath={.status.loadBalancer.ingress[*].ip}"); got != u.IP.String() {
			return fmt.Errorf("the address of %s is %q", name, got)
		}
		return nil
	})
}

func (u *upstreamTest) play(t *testing.T, all []upstreamIngress) {
	t.Helper()
	for _, s := range all {
		t.Run(s.feature+": "+s.scenario, func(t *testing.T) {
			hosts.Eventually(t, 10*time.Second, func() error {
				_, err := u.ask(t, s)
				return err
			})
		})
	}
}

// ask sends the request of a scenario. The Service gets it as it was sent, and the answer says how long it is, of what type and when it was made.
func (u *upstreamTest) ask(t *testing.T, s upstreamIngress) (got echoed, err error) {
	request, err := http.NewRequestWithContext(t.Context(), s.method, strings.Replace(s.url, "ADDRESS", u.IP.String(), 1), nil)
	if err != nil {
		return got, err
	}
	answer, err := u.client.Do(request)
	if err != nil {
		return got, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != s.status || s.status != http.StatusOK {
		if answer.StatusCode != s.status {
			err = fmt.Errorf("%s %q, not %d", answer.Status, body, s.status)
		}
		return got, err
	}
	if err := json.Unmarshal(body, &got); err != nil {
		return got, fmt.Errorf("%w: %s", err, body)
	}
	want := echoed{got.Endpoint, s.method, "/" + strings.TrimPrefix(request.URL.Path, "/"), request.URL.Host, "HTTP/1.1", "Go-http-client/1.1"}
	if got != want || u.services[got.Endpoint] != s.service || answer.Proto != "HTTP/1.1" {
		return got, fmt.Errorf("Service %q got %+v, not Service %q %+v; the answer is %s", u.services[got.Endpoint], got, s.service, want, answer.Proto)
	}
	for _, header := range []string{"Content-Length", "Content-Type", "Date", "Server"} {
		if answer.Header.Get(header) == "" {
			return got, fmt.Errorf("the answer has no header %s: %v", header, answer.Header)
		}
	}
	return got, nil
}
