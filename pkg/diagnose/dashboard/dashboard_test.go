package dashboard

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"k8s.io/client-go/rest"
)

const host = "coracle-test.localhost"

// api answers like an API server, or an aggregated one with bad intent, and keeps what it was asked.
type api struct {
	*httptest.Server
	asked []*http.Request
}

func newAPI(t *testing.T) *api {
	a := &api{}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.asked = append(a.asked, r)
		if strings.HasPrefix(r.URL.Path, "/apis/evil.example.org") {
			w.Header().Set("Content-Type", "text/html")
			w.Header().Set("Set-Cookie", "coracle=stolen")
			w.Header().Set("Content-Security-Policy", "default-src *")
			if r.URL.Path == "/apis/evil.example.org/v1/elsewhere" {
				http.Redirect(w, r, "https://evil.example.org", http.StatusFound)
			}
			_, _ = io.WriteString(w, "<script>fetch('/api/v1/pods')</script>")
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"PodList"}`)
	}))
	t.Cleanup(a.Close)
	return a
}

// browser calls the page's server as a browser would.
type browser struct {
	t       *testing.T
	handler http.Handler
	cookie  *http.Cookie
}

func open(t *testing.T, a *api, change func(*Server)) *browser {
	s := &Server{
		API: &rest.Config{Host: a.URL, BearerToken: "administrator"}, Secret: "the secret of the address", Hosts: []string{host},
		Page: fstest.MapFS{"index.html": {Data: []byte(`<meta name="csp-nonce" content="NONCE">`)}, "assets/page.js": {Data: []byte("1")}},
	}
	if change != nil {
		change(s)
	}
	handler, err := s.Handler(false)
	if err != nil {
		t.Fatal(err)
	}
	return &browser{t: t, handler: handler}
}

func (b *browser) call(method, path, body string, header ...string) *http.Response {
	r := httptest.NewRequest(method, "http://"+host+path, strings.NewReader(body))
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	if method != http.MethodGet {
		r.Header.Set("Origin", "http://"+host)
	}
	if b.cookie != nil {
		r.AddCookie(b.cookie)
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
		}
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	b.handler.ServeHTTP(w, r)
	return w.Result()
}

func (b *browser) enter() *browser {
	answer := b.call("POST", "/session", `{"secret":"the secret of the address"}`)
	if answer.StatusCode != http.StatusNoContent || len(answer.Cookies()) != 1 {
		b.t.Fatalf("the secret was answered with %s", answer.Status)
	}
	b.cookie = answer.Cookies()[0]
	return b
}

func TestOnlyWhoKnowsTheSecretIsLetIn(t *testing.T) {
	a := newAPI(t)
	b := open(t, a, nil)
	paths := []string{"/api/v1/pods", "/apis", "/version", "/facts", "/reports/doctor", "/certificates/default/web"}
	for _, path := range paths {
		if got := b.call("GET", path, "").StatusCode; got != http.StatusUnauthorized {
			t.Errorf("%s without a cookie: %d", path, got)
		}
	}
	for _, body := range []string{"", "{}", `{"secret":""}`, `{"secret":"the secret of the addresss"}`} {
		if got := b.call("POST", "/session", body); got.StatusCode != http.StatusUnauthorized || len(got.Cookies()) > 0 {
			t.Errorf("%s opened a session: %s", body, got.Status)
		}
	}
	b.cookie = &http.Cookie{Name: "coracle", Value: "the secret of the address"}
	if got := b.call("GET", "/api/v1/pods", "").StatusCode; got != http.StatusUnauthorized {
		t.Errorf("the secret was taken for the cookie: %d", got)
	}
	if len(a.asked) > 0 {
		t.Errorf("the API was asked: %v", a.asked[0].URL)
	}
	cookie := b.enter().cookie
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Path != "/" || strings.Contains(cookie.Value, "secret") {
		t.Errorf("the cookie is %v", cookie)
	}
	if got := b.call("GET", "/api/v1/pods", "").StatusCode; got != http.StatusOK {
		t.Errorf("with the cookie: %d", got)
	}
}

// TestStolenCookie: with --listen the cookie of one address is of no use to another, as that of a tenant whose port of the same host got it.
func TestStolenCookie(t *testing.T) {
	for secure, other := range map[bool]int{true: http.StatusUnauthorized, false: http.StatusNoContent} {
		in := newSession("s", secure)
		w := httptest.NewRecorder()
		in.begin(w, httptest.NewRequest("POST", "/session", strings.NewReader(`{"secret":"s"}`))) // from 192.0.2.1
		for from, want := range map[string]int{"192.0.2.1:4321": http.StatusNoContent, "192.0.2.2:1234": other, "[2001:db8::1]:1234": other} {
			r := httptest.NewRequest("GET", "/facts", nil)
			r.RemoteAddr = from
			r.AddCookie(w.Result().Cookies()[0])
			got := httptest.NewRecorder()
			in.required(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })).ServeHTTP(got, r)
			if got.Code != want {
				t.Errorf("secure %t: from %s: %d, not %d", secure, from, got.Code, want)
			}
		}
	}
}

func TestOtherPagesAndNames(t *testing.T) {
	a := newAPI(t)
	b := open(t, a, nil).enter()
	for _, one := range []struct {
		what, method string
		header       []string
		want         int
	}{
		{"a name that somebody's DNS resolves to this machine", "GET", []string{"Host", "evil.example.org"}, http.StatusMisdirectedRequest},
		{"the address, where other ports have the same cookies", "GET", []string{"Host", "127.0.0.1:1234"}, http.StatusMisdirectedRequest},
		{"another page that reads", "GET", []string{"Origin", "http://evil.example.org"}, http.StatusForbidden},
		{"another page's image", "GET", []string{"Sec-Fetch-Site", "cross-site"}, http.StatusForbidden},
		{"a page of another port", "GET", []string{"Sec-Fetch-Site", "same-site"}, http.StatusForbidden},
		{"another page that writes", "POST", []string{"Origin", "http://evil.example.org"}, http.StatusForbidden},
		{"a page of another port that writes", "POST", []string{"Origin", "http://" + host + ":81"}, http.StatusForbidden},
		{"a form of no page", "POST", []string{"Origin", "null"}, http.StatusForbidden},
		{"a program without an origin", "DELETE", []string{"Origin", ""}, http.StatusForbidden},
		{"a WebSocket of another page", "GET", []string{"Upgrade", "websocket", "Connection", "Upgrade", "Origin", "http://evil.example.org"}, http.StatusForbidden},
		{"a WebSocket of no page", "GET", []string{"Upgrade", "websocket", "Connection", "Upgrade"}, http.StatusForbidden},
	} {
		if got := b.call(one.method, "/api/v1/pods", "", one.header...).StatusCode; got != one.want {
			t.Errorf("%s: %d, not %d", one.what, got, one.want)
		}
	}
	if len(a.asked) > 0 {
		t.Errorf("the API was asked: %v", a.asked[0].URL)
	}
}

func TestPaths(t *testing.T) {
	for path, want := range map[string]bool{
		"/api": true, "/apis": true, "/version": true, "/api/v1": true, "/apis/apps/v1": true,
		"/api/v1/pods": true, "/api/v1/namespaces": true, "/api/v1/namespaces/default": true, "/api/v1/namespaces/default/pods/web/log": true,
		"/api/v1/namespaces/default/pods/web/exec": true, "/apis/apps/v1/namespaces/default/deployments/web/scale": true,
		"/apis/metrics.k8s.io/v1beta1/nodes": true, "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node": true,

		"/api/v1/namespaces/default/pods/web/proxy": false, "/api/v1/namespaces/default/pods/web/proxy/": false, "/api/v1/namespaces/default/pods/web:80/proxy/index.html": false,
		"/api/v1/namespaces/default/services/web/proxy/a/b": false, "/api/v1/nodes/one/proxy/logs": false, "/api/v1/proxy/nodes/one": false,
		"/api/v1/watch/pods": false, "/api/v1/namespaces/default/pods/web/portforward": false, "/api/v1/namespaces/default/pods/web/attach": false,
		"/api/v1/namespaces/default/serviceaccounts/default/token": false, "/apis/certificates.k8s.io/v1/certificatesigningrequests/a/approval": false,
		"/api/v1/namespaces/default/pods/web/%70roxy": false, "/api/v1/namespaces/default/pods/..%2f..": false, "/api/v1/../../metrics": false,
		"/api//v1/nodes/one/proxy": false, "/api/v1/namespaces//pods/web/proxy": false, "/api/v1/pods/": false, "/metrics": false, "/logs/": false, "/openid/v1/jwks": false,
		"/api/v1/namespaces/default/status/proxy/pods": false, "/api/v1/namespaces/x/finalize": false, "/api/v1/namespaces/x/status": false, "/api/v1/namespaces/x/status/y": false, "/apis/x/v1/namespaces/namespaces/proxy/x": false,
	} {
		u, err := url.Parse(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := parse(u); ok != want {
			t.Errorf("%s is passed on: %v", path, ok)
		}
	}
}

func TestSecretsAreNotShown(t *testing.T) {
	a := newAPI(t)
	b := open(t, a, nil).enter()
	for _, path := range []string{"/api/v1/secrets", "/api/v1/secrets?watch=true", "/api/v1/namespaces/default/secrets", "/api/v1/namespaces/default/secrets/web"} {
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
			if got := b.call(method, path, "").StatusCode; got != http.StatusForbidden {
				t.Errorf("%s %s: %d", method, path, got)
			}
		}
	}
	if len(a.asked) > 0 {
		t.Errorf("the API was asked: %v", a.asked[0].URL)
	}
}

func TestReadOnly(t *testing.T) {
	a := newAPI(t)
	b := open(t, a, func(s *Server) { s.ReadOnly = true }).enter()
	for call, want := range map[string]int{
		"GET /api/v1/pods": 200, "GET /api/v1/namespaces/default/pods/web/log?follow=true": 200,
		"POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews": 200, "POST /apis/authentication.k8s.io/v1/selfsubjectreviews": 200,
		"POST /apis/evil.example.org/v1/selfsubjectreviews": 403, "POST /api/v1/namespaces/default/pods": 403, "DELETE /api/v1/nodes/one": 403,
		"PATCH /apis/apps/v1/namespaces/default/deployments/web?dryRun=All": 403,
		"GET /api/v1/namespaces/default/pods/web/exec?command=sh":           403, "POST /api/v1/namespaces/default/pods/web/exec?command=sh": 403,
	} {
		method, path, _ := strings.Cut(call, " ")
		if got := b.call(method, path, "{}").StatusCode; got != want {
			t.Errorf("%s: %d, not %d", call, got, want)
		}
	}
}

// TestCredentials: the API gets those of the kubeconfig and none of the browser; the browser gets none.
func TestCredentials(t *testing.T) {
	a := newAPI(t)
	b := open(t, a, nil).enter()
	b.call("GET", "/api/v1/pods?limit=500", "", "Authorization", "Bearer mine", "Impersonate-User", "root", "X-Remote-User", "root", "X-Forwarded-For", "192.0.2.1")
	r := a.asked[0]
	if got := r.Header.Get("Authorization"); got != "Bearer administrator" || r.URL.RawQuery != "limit=500" {
		t.Errorf("the API was asked %s by %s", r.URL, got)
	}
	for _, name := range []string{"Impersonate-User", "X-Remote-User", "X-Forwarded-For", "Cookie", "Origin"} {
		if got := r.Header.Get(name); got != "" {
			t.Errorf("the API got %s: %s", name, got)
		}
	}
}

// TestForeignAnswers: what an aggregated API answers cannot act as the page.
func TestForeignAnswers(t *testing.T) {
	b := open(t, newAPI(t), nil).enter()
	got := b.call("GET", "/apis/evil.example.org/v1/things", "")
	if kind := got.Header.Get("Content-Type"); !strings.HasPrefix(kind, "text/plain") || got.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("a page of an aggregated API came as %s", kind)
	}
	if policy := got.Header["Content-Security-Policy"]; len(policy) != 1 || !strings.Contains(policy[0], "sandbox") {
		t.Errorf("its policy is %q", policy)
	}
	if got.Header.Get("Set-Cookie") != "" {
		t.Error("it set a cookie")
	}
	if got := b.call("GET", "/apis/evil.example.org/v1/elsewhere", ""); got.StatusCode != http.StatusBadGateway || got.Header.Get("Location") != "" {
		t.Errorf("it led elsewhere: %s", got.Status)
	}
}

func TestPagePolicy(t *testing.T) {
	b := open(t, newAPI(t), nil)
	first, second := b.call("GET", "/", ""), b.call("GET", "/", "")
	for _, part := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "connect-src 'self'"} {
		if !strings.Contains(first.Header.Get("Content-Security-Policy"), part) {
			t.Errorf("the policy lacks %s: %s", part, first.Header.Get("Content-Security-Policy"))
		}
	}
	if policy := first.Header.Get("Content-Security-Policy"); strings.Contains(policy, "unsafe") || strings.Contains(policy, "NONCE") || policy == second.Header.Get("Content-Security-Policy") {
		t.Errorf("the policy is %s", policy)
	}
	for _, path := range []string{"/assets", "/assets/", "/nothing"} {
		if got := b.call("GET", path, "").StatusCode; got != http.StatusNotFound {
			t.Errorf("%s: %d", path, got)
		}
	}
}

// TestListen: other machines reach it over TLS only, under its names and addresses, with the token.
func TestListen(t *testing.T) {
	a := newAPI(t)
	s := &Server{API: &rest.Config{Host: a.URL}, Page: fstest.MapFS{"index.html": {}}, Secret: "the token of the wall", IP: true, ReadOnly: true}
	certificate, fingerprint, err := SelfSigned([]string{"wall"}, []net.IP{net.IPv4(127, 0, 0, 1)}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- s.Serve(ctx, []net.Listener{l}, func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate, nil })
	}()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, VerifyConnection: func(c tls.ConnectionState) error {
		if got := Fingerprint(c.PeerCertificates[0].Raw); got != fingerprint {
			t.Errorf("the certificate's fingerprint is %s, not %s", got, fingerprint)
		}
		return nil
	}}}}
	address := "https://" + l.Addr().String()
	if answer, err := client.Get("http://" + l.Addr().String()); err == nil && answer.StatusCode == http.StatusOK {
		t.Error("it answers without TLS")
	}
	get := func(cookie *http.Cookie) int {
		r, _ := http.NewRequest("GET", address+"/api/v1/pods", nil)
		if cookie != nil {
			r.AddCookie(cookie)
		}
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		return answer.StatusCode
	}
	if got := get(nil); got != http.StatusUnauthorized {
		t.Errorf("without the token: %d", got)
	}
	body, _ := json.Marshal(map[string]string{"secret": s.Secret})
	r, _ := http.NewRequest("POST", address+"/session", strings.NewReader(string(body)))
	r.Header.Set("Origin", address)
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if len(answer.Cookies()) != 1 || !answer.Cookies()[0].Secure || answer.Cookies()[0].Name != "__Host-coracle" {
		t.Fatalf("the token was answered with %s %v", answer.Status, answer.Cookies())
	}
	if got := get(answer.Cookies()[0]); got != http.StatusOK {
		t.Errorf("with the cookie: %d", got)
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("it ended with %v", err)
	}
}
