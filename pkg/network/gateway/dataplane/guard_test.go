package dataplane

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// seen is a backend that answers with what it got. With ?status= it has that status, with ?stall it begins an answer and stops.
func seen(t *testing.T, name string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		if r.URL.Query().Has("stall") {
			<-r.Context().Done()
			return
		}
		w.Header().Set("X-Pod", name)
		var status int
		if _, err := fmt.Sscan(r.URL.Query().Get("status"), &status); err == nil {
			w.WriteHeader(status)
		}
		fmt.Fprintf(w, "%s %s %s body=%d authorization=%q code=%q uri=%q namespace=%q", name, r.Host, r.RequestURI, n,
			r.Header.Get("Authorization"), r.Header.Get("X-Code"), r.Header.Get("X-Original-Uri"), r.Header.Get("X-Namespace"))
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// testPolicies: each rule of a policy through the proxy.
func testPolicies(t *testing.T, s *served, config gateway.Config, port uint16) {
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	send := func(t *testing.T, method, path, body string, status int, want string, headers ...string) http.Header {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var reader io.Reader
		if body != "" {
			reader = strings.NewReader(body)
		}
		if strings.HasPrefix(body, "chunked") {
			reader = io.MultiReader(reader)
		}
		request, err := http.NewRequestWithContext(ctx, method, fmt.Sprintf("http://127.0.0.1:%d%s", port, path), reader)
		if err != nil {
			t.Fatal(err)
		}
		request.Host = "p.test"
		for i := 0; i < len(headers); i += 2 {
			request.Header.Add(headers[i], headers[i+1])
		}
		answer, err := client.Do(request)
		if err != nil {
			t.Error(err)
			return http.Header{}
		}
		defer answer.Body.Close()
		got, _ := io.ReadAll(answer.Body)
		if answer.StatusCode != status || !strings.Contains(string(got), want) {
			t.Errorf("%s %s: %d %s, want %d %s", method, path, answer.StatusCode, got, status, want)
		}
		return answer.Header
	}
	endpoints := gateway.Endpoints{"one": {seen(t, "one")}, "many": {}, "pages": {seen(t, "pages")}, "none": {}}
	for i := range 5 {
		endpoints["many"] = append(endpoints["many"], seen(t, fmt.Sprintf("pod-%d", i)))
	}
	serve := func(t *testing.T, p gateway.Policy, change func(*gateway.Route)) {
		t.Helper()
		r := route("p.test", "/", "one", gateway.ToHTTP)
		r.Policy = "p"
		if change != nil {
			change(&r)
		}
		config := config
		config.Routes, config.Policies = []gateway.Route{r}, map[string]gateway.Policy{"p": p}
		s.apply(t, config, endpoints)
	}
	local := netip.MustParsePrefix("127.0.0.0/8")

	t.Run("clients", func(t *testing.T) {
		serve(t, gateway.Policy{Clients: &gateway.Clients{Allow: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}}, nil)
		send(t, "GET", "/", "", 403, "may not", "X-Forwarded-For", "192.0.2.1", "X-Real-Ip", "192.0.2.1")
		serve(t, gateway.Policy{Clients: &gateway.Clients{Allow: []netip.Prefix{local}, Deny: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}}, nil)
		send(t, "GET", "/", "", 403, "may not")
		serve(t, gateway.Policy{Clients: &gateway.Clients{Allow: []netip.Prefix{local}}}, nil)
		send(t, "GET", "/", "", 200, "one")
	})
	t.Run("a policy that is missing", func(t *testing.T) {
		serve(t, gateway.Policy{}, func(r *gateway.Route) { r.Policy = "other" })
		send(t, "GET", "/", "", 503, "missing")
	})
	t.Run("passwords", func(t *testing.T) {
		users := &gateway.BasicAuth{Realm: "shop", Hashes: map[string]string{"ann": "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ="}}
		cors := func(r *gateway.Route) { r.CORS = &gateway.CORS{Origins: []string{"https://a.test"}, Credentials: true} }
		serve(t, gateway.Policy{Users: users}, cors)
		if h := send(t, "GET", "/", "", 401, "password", "Origin", "https://a.test"); h.Get("WWW-Authenticate") != `Basic realm="shop", charset="UTF-8"` || h.Get("Access-Control-Allow-Origin") == "" {
			t.Errorf("%v", h)
		}
		send(t, "GET", "/", "", 401, "wrong", "Authorization", "Basic YW5uOndyb25n")
		for range 2 { // the second time it is remembered
			send(t, "GET", "/", "", 200, `authorization=""`, "Authorization", "Basic YW5uOnNlY3JldA==")
		}
		send(t, "OPTIONS", "/", "", 204, "", "Origin", "https://a.test", "Access-Control-Request-Method", "GET")
		send(t, "OPTIONS", "/", "", 401, "", "Origin", "https://a.test")
	})
	t.Run("limits", func(t *testing.T) {
		limits := &gateway.Limits{Rates: []gateway.Rate{{Requests: 1, Per: time.Hour, Burst: 2}}}
		serve(t, gateway.Policy{Limits: limits}, nil)
		for range 3 {
			send(t, "GET", "/", "", 200, "one")
		}
		send(t, "GET", "/", "", 429, "too many")
		serve(t, gateway.Policy{Limits: limits, MaxBody: 1 << 20}, nil) // a change of something else forgives nothing
		send(t, "GET", "/", "", 429, "too many")
		limits.Except = []netip.Prefix{local}
		serve(t, gateway.Policy{Limits: limits}, nil)
		send(t, "GET", "/", "", 200, "one")
	})
	t.Run("bodies", func(t *testing.T) {
		serve(t, gateway.Policy{MaxBody: 10}, nil)
		send(t, "POST", "/", "0123456789", 200, "body=10")
		send(t, "POST", "/", "0123456789a", 413, "too long")
		send(t, "POST", "/", "chunked "+strings.Repeat("x", 1<<16), 413, "too long")
	})
	t.Run("a backend that stalls", func(t *testing.T) {
		serve(t, gateway.Policy{Stall: 200 * time.Millisecond}, nil)
		send(t, "POST", "/", "abc", 200, "body=3")
		send(t, "POST", "/?stall", "abc", 504, "too long")
	})
	t.Run("affinity", func(t *testing.T) {
		serve(t, gateway.Policy{Affinity: &gateway.Affinity{Cookie: &gateway.Cookie{Name: "route", Path: "/", SameSite: "Lax"}}}, func(r *gateway.Route) {
			r.Backends[0].Endpoints = "many"
		})
		for range 3 {
			cookie, _, _ := strings.Cut(send(t, "GET", "/", "", 200, "pod-").Get("Set-Cookie"), ";")
			if !strings.HasPrefix(cookie, "route=") {
				t.Fatalf("cookie %q", cookie)
			}
			got := map[string]bool{}
			for range 10 {
				h := send(t, "GET", "/", "", 200, "pod-", "Cookie", cookie)
				if h.Get("Set-Cookie") != "" {
					t.Errorf("another cookie")
				}
				got[h.Get("X-Pod")] = true
			}
			if len(got) != 1 {
				t.Errorf("a client comes to %v", got)
			}
		}
	})
	t.Run("pages for errors", func(t *testing.T) {
		pages := &gateway.ErrorPages{Codes: []int{404}, Backend: gateway.Backend{Endpoints: "pages", Weight: 1}, Headers: []gateway.Header{{Name: "X-Namespace", Value: "shop"}}}
		serve(t, gateway.Policy{Errors: pages}, nil)
		send(t, "GET", "/x?status=404", "", 200, `pages p.test / body=0 authorization="" code="404" uri="/x?status=404" namespace="shop"`)
		send(t, "GET", "/x?status=500", "", 500, "one")
		serve(t, gateway.Policy{Errors: pages}, func(r *gateway.Route) { r.Backends[0].Endpoints = "none" })
		send(t, "GET", "/x", "", 200, "pages p.test /x")
	})
	t.Run("redirects", func(t *testing.T) {
		serve(t, gateway.Policy{Redirect: &gateway.PolicyRedirect{URL: "https://new.test$request_uri", Status: 308}}, nil)
		if h := send(t, "GET", "/a%20b?c=d", "", 308, ""); h.Get("Location") != "https://new.test/a%20b?c=d" {
			t.Errorf("%v", h)
		}
	})
	t.Run("groups of expressions", func(t *testing.T) {
		serve(t, gateway.Policy{}, func(r *gateway.Route) {
			r.Kind, r.Path = gateway.Expression, `(?i:/api(/|$)(.*))(?s:.*)`
			r.Rewrite = &gateway.Rewrite{Path: &gateway.PathRewrite{Path: "/v2/${2}", Groups: true}}
		})
		send(t, "GET", "/API/a%20b/c?d=e", "", 200, "one p.test /v2/a%20b/c?d=e ")
		send(t, "GET", "/api", "", 200, "one p.test /v2/ ")
		send(t, "GET", "/apis", "", 404, "")
		send(t, "GET", "/api/"+strings.Repeat("x", 4096), "", 414, "")
	})
	t.Run("the longest expression, and canaries by cookie", func(t *testing.T) {
		short, long := route("p.test", `(?:)(?s:/.*)?`, "one", gateway.ToHTTP), route("p.test", `(?i:/api(/|$)(.*))(?s:.*)`, "pages", gateway.ToHTTP)
		short.Kind, short.Length, long.Kind, long.Length = gateway.Expression, 1, gateway.Expression, 13
		canary := long
		canary.Headers = []gateway.Value{{Name: "Cookie", Value: `(?:.*[;,] *)?canary=always *(?:[;,].*)?`, Expression: true}}
		canary.Backends = []gateway.Backend{{Endpoints: "many", Weight: 1}}
		config := config
		config.Routes = []gateway.Route{short, long, canary}
		s.apply(t, config, endpoints)
		send(t, "GET", "/x", "", 200, "one")
		send(t, "GET", "/api/x", "", 200, "pages")
		send(t, "GET", "/api/x", "", 200, "pages", "Cookie", "xcanary=always; canary=alwaysnot")
		send(t, "GET", "/api/x", "", 200, "pod-", "Cookie", "a=b; canary=always; c=d")
	})
	t.Run("requests with the same text go to the same endpoint", func(t *testing.T) {
		serve(t, gateway.Policy{Affinity: &gateway.Affinity{By: "$arg_user"}}, func(r *gateway.Route) { r.Backends[0].Endpoints = "many" })
		pods := map[string]string{}
		for n := range 60 {
			user := fmt.Sprint(n % 20)
			pod := send(t, "GET", fmt.Sprintf("/%d?user=%s", n, user), "", 200, "pod-").Get("X-Pod")
			if pods[user] != "" && pods[user] != pod {
				t.Errorf("user %s comes to %s and %s", user, pods[user], pod)
			}
			pods[user] = pod
		}
	})
	t.Run("only what may be sent twice is sent again", func(t *testing.T) {
		var n atomic.Int32
		flaky := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if n.Add(1)%2 == 1 {
				w.WriteHeader(503)
			}
		}))
		defer flaky.Close()
		endpoints["flaky"] = []string{flaky.Listener.Addr().String()}
		serve(t, gateway.Policy{}, func(r *gateway.Route) {
			r.Backends[0].Endpoints, r.Retry = "flaky", &gateway.Retry{Codes: []int{503}, Attempts: 1, Idempotent: true}
		})
		send(t, "GET", "/", "", 200, "")
		send(t, "POST", "/", "order", 503, "")
		if got := n.Load(); got != 3 {
			t.Errorf("the backend got %d requests", got)
		}
	})
	t.Run("no way around a guarded path", func(t *testing.T) {
		open, guarded := route("p.test", "/", "one", gateway.ToHTTP), route("p.test", "/admin", "one", gateway.ToHTTP)
		guarded.Policy = "p"
		config := config
		config.Routes = []gateway.Route{open, guarded}
		config.Policies = map[string]gateway.Policy{"p": {Clients: &gateway.Clients{Deny: []netip.Prefix{local}}}}
		s.apply(t, config, endpoints)
		for _, path := range []string{"/admin", "/admin/", "//admin", "/x/../admin", "/x/%2e%2e/admin", "/./admin", "/x%2f..%2fadmin", "/admin%2fx", "///admin//x", "/%61dmin"} {
			send(t, "GET", path, "", 403, "may not")
		}
		for _, path := range []string{"/admin;x", "/admin;x/secret", "/;x/admin", "/;/admin/;y", "/admin%3Bx/secret", "//admin;a=b;c=d/", "/x/../admin;x/secret", "/admin;x%2fsecret"} {
			send(t, "GET", path, "", 403, "may not") // to backends that drop parameters of segments
		}
		send(t, "GET", "/x;y/admin;z", "", 200, "one p.test /x;y/admin;z ")
		send(t, "GET", "/a//b", "", 200, "one p.test /a//b ")
		send(t, "GET", "/.well-known/x", "", 200, "one p.test /.well-known/x ")
		send(t, "GET", "/x/../y/", "", 200, "one p.test /y/ ")
		named := route("p.test", "/admin;public", "one", gateway.ToHTTP)
		named.Kind = gateway.Exact
		config.Routes = append(config.Routes, named)
		s.apply(t, config, endpoints)
		send(t, "GET", "/admin;public", "", 200, "one p.test /admin;public ")
		send(t, "GET", "/admin;other", "", 403, "may not")
	})
}
