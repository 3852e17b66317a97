package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
)

// gatewayWithCertificate is a Gateway that asks for its certificate, with a route, and a ListenerSet of another namespace that wants a host of an Ingress.
const gatewayWithCertificate = `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: secure, annotations: {coracle.dev/acme: "true"}}
spec:
  gatewayClassName: coracle
  allowedListeners: {namespaces: {from: All}}
  listeners: [{name: https, port: 443, protocol: HTTPS, hostname: gateway.acme.test, tls: {certificateRefs: [{name: gateway}]}}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: secure}
spec:
  parentRefs: [{name: secure}, {name: own, sectionName: https}]
  hostnames: [gateway.acme.test, own.acme.test]
  rules: [{filters: [{type: RequestRedirect, requestRedirect: {hostname: elsewhere.test, statusCode: 302}}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: own, annotations: {metallb.io/address-pool: gateways, coracle.dev/acme: "true"}}
spec:
  gatewayClassName: coracle
  listeners:
  - {name: http, port: 80, protocol: HTTP}
  - {name: https, port: 443, protocol: HTTPS, hostname: own.acme.test, tls: {certificateRefs: [{name: own}]}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: owner}
spec: {rules: [{host: owned.acme.test, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: none, port: {number: 80}}}}]}}]}
---
apiVersion: v1
kind: Namespace
metadata: {name: evil}
---
apiVersion: gateway.networking.k8s.io/v1
kind: ListenerSet
metadata: {name: thief, namespace: evil, annotations: {coracle.dev/acme: "true"}}
spec:
  parentRef: {name: secure, namespace: default}
  listeners:
  - {name: stream, port: 443, protocol: TLS, hostname: owned.acme.test, tls: {mode: Passthrough}}
  - {name: web, port: 443, protocol: HTTPS, hostname: owned.acme.test, tls: {certificateRefs: [{name: stolen}]}}
`

// newerIngress wants the host of a Gateway's listener and route, and a certificate for it.
const newerIngress = `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: newer, namespace: evil, annotations: {coracle.dev/acme: "true"}}
spec:
  tls: [{hosts: [gateway.acme.test], secretName: stolen}]
  rules: [{host: gateway.acme.test, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: none, port: {number: 80}}}}]}}]
`

// testGateway: a Gateway that has nothing but a listener of HTTPS gets its certificate, with which all servers serve its route, and so does one at an address of its own. A listener that another namespace
// adds for the host of an Ingress neither serves nor gets one, and nor does a newer Ingress for the host of the Gateway.
func (a *acme) testGateway(t *testing.T) {
	h := a.Servers[0].For(t)
	applyGatewayAPI(t, h)
	before := a.server.Count("Added order")
	began := time.Now()
	h.Apply(gatewayWithCertificate)
	for _, s := range a.Servers {
		a.awaitRedirect(t, s, "gateway.acme.test", s.IP.String())
	}
	h.Apply(newerIngress)
	t.Logf("all servers serve the route with the certificate %.1f s after the Gateway was made", time.Since(began).Seconds())
	a.awaitRedirect(t, hosts.New(t, a.Wire, "outside", hosts.Options{}), "own.acme.test", ownAddress)
	for _, c := range []struct{ query, want string }{
		{`gateway/secure -n default -o jsonpath={.status.listeners[0].conditions[?(@.type=="ResolvedRefs")].status}`, "True"},
		{`listenerset/thief -n evil -o jsonpath={.status.listeners[*].conditions[?(@.type=="Conflicted")].reason}`, "HostnameConflict HostnameConflict"},
		{`listenerset/thief -n evil -o jsonpath={.status.listeners[0].conditions[?(@.type=="Accepted")].message}`, "host owned.acme.test belongs to Ingress default/owner"},
		{`events -n evil --field-selector=reason=HostTaken -o jsonpath={.items[*].message}`, "host gateway.acme.test belongs to Gateway default/secure"},
		{`events -n default --field-selector=involvedObject.kind=Gateway,involvedObject.name=secure -o jsonpath={.items[*].message}`, "Secret default/gateway has a certificate for gateway.acme.test"},
	} {
		hosts.Eventually(t, 20*time.Second, func() error {
			return contains("of "+c.query, h.Kubectl(append([]string{"get"}, strings.Fields(c.query)...)...), c.want)
		})
	}
	a.awaitRedirect(t, a.Servers[0], "gateway.acme.test", a.Servers[0].IP.String())
	if n := a.server.Count("Added order") - before; n > 4 { // two are renewals
		t.Errorf("%d orders", n)
	}
	if out, err := h.TryCoracle("kubectl", "-n", "evil", "get", "secret", "stolen"); err == nil {
		t.Errorf("another namespace has a certificate: %s", out)
	}
	h.Kubectl("delete", "gateway/secure", "gateway/own", "httproute/secure", "ingress/owner", "secret/gateway", "secret/own", "namespace/evil")
}

// awaitRedirect awaits that the route answers for a host at an address, with a certificate that the ACME server has issued.
func (a *acme) awaitRedirect(t *testing.T, from *hosts.Host, host, address string) {
	t.Helper()
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return from.Dial(ctx, network, net.JoinHostPort(address, "443"))
	}
	client := &http.Client{Timeout: 5 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial, TLSClientConfig: &tls.Config{RootCAs: a.server.Roots()}}}
	hosts.Eventually(t, 60*time.Second, func() error {
		answer, err := client.Get("https://" + host + "/")
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusFound {
			return errors.New(answer.Status)
		}
		return nil
	})
}
