package dataplane

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
	"github.com/coracle-dev/coracle/test/freeport"
)

// recorded is a request as a backend has got it.
type recorded struct {
	Method, URI, Host, Body string
	Header                  http.Header
}

// recorder is a backend that answers with what it has got, after what its path says.
type recorder struct {
	*httptest.Server
	mu   sync.Mutex
	got  []recorded
	fail atomic.Int32 // how many requests get the status that the query names
}

func record(t *testing.T) *recorder {
	t.Helper()
	r := &recorder{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		one := recorded{req.Method, req.RequestURI, req.Host, string(body), req.Header}
		r.mu.Lock()
		r.got = append(r.got, one)
		r.mu.Unlock()
		if wait, err := time.ParseDuration(req.URL.Query().Get("wait")); err == nil {
			select {
			case <-time.After(wait):
			case <-req.Context().Done():
				return
			}
		}
		w.Header().Set("X-From", "backend")
		w.Header().Set("Access-Control-Allow-Origin", "*")
		if r.fail.Add(-1) >= 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(one)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *recorder) address() string { return r.Listener.Addr().String() }

func (r *recorder) all() []recorded {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]recorded(nil), r.got...)
}

// testForwarding: requests are changed, repeated, copied and shared as routes say.
func testForwarding(t *testing.T, s *served, config gateway.Config, port uint16) {
	one, mirror := record(t), record(t)
	endpoints := gateway.Endpoints{
		"one": {one.address()}, "mirror": {mirror.address()}, "dead": {fmt.Sprintf("127.0.0.1:%d", freeport.Port(t))}, "none": {}, "named": {backend(t, "named")},
	}
	to := func(path, key string, change func(*gateway.Route)) gateway.Route {
		r := route("f.test", path, key, gateway.ToHTTP)
		r.Listeners = []string{"plain"}
		if change != nil {
			change(&r)
		}
		return r
	}
	config.Routes = []gateway.Route{
		to("/headers", "one", func(r *gateway.Route) {
			r.RequestHeaders = &gateway.Headers{Set: []gateway.Header{{Name: "X-A", Value: "{env.PATH}"}}, Remove: []string{"X-Gone"}}
			r.ResponseHeaders = &gateway.Headers{Set: []gateway.Header{{Name: "X-From", Value: "route"}}}
			r.Backends[0].RequestHeaders = &gateway.Headers{Add: []gateway.Header{{Name: "X-A", Value: "backend"}}}
			r.Backends[0].ResponseHeaders = &gateway.Headers{Add: []gateway.Header{{Name: "X-From", Value: "{file.config.json}"}}}
			r.Rewrite = &gateway.Rewrite{Host: "other.test", Path: &gateway.PathRewrite{Prefix: true, Path: "/{env.PATH}"}}
		}),
		to("/redirect", "one", func(r *gateway.Route) {
			r.Redirect, r.Backends = &gateway.Redirect{Scheme: "https", Status: 301, Path: &gateway.PathRewrite{Path: "/{env.PATH}"}}, nil
		}),
		to("/timeout", "one", func(r *gateway.Route) { r.Timeout = 100 * time.Millisecond }),
		to("/slow", "one", func(r *gateway.Route) { r.BackendTimeout = 100 * time.Millisecond }),
		to("/retry", "one", func(r *gateway.Route) {
			r.Retry = &gateway.Retry{Codes: []int{503, 504}, Attempts: 2, Backoff: time.Millisecond}
			r.BackendTimeout = 200 * time.Millisecond
		}),
		to("/mirror", "one", func(r *gateway.Route) {
			r.RequestHeaders = &gateway.Headers{Set: []gateway.Header{{Name: "X-A", Value: "1"}}}
			r.Mirrors = []gateway.Mirror{
				{Backend: gateway.Backend{Endpoints: "mirror"}}, {Backend: gateway.Backend{Endpoints: "dead"}}, {Backend: gateway.Backend{Endpoints: "none"}},
			}
		}),
		to("/weights", "one", func(r *gateway.Route) {
			r.Unserved = 500
			r.Backends = []gateway.Backend{{Endpoints: "one", Weight: 2}, {Weight: 1}, {Endpoints: "none", Weight: 1}}
		}),
		to("/nobody", "", func(r *gateway.Route) { r.Unserved, r.Backends = 500, nil }),
		to("/dead", "dead", nil),
		to("/cors", "one", func(r *gateway.Route) { r.CORS = &gateway.CORS{Origins: []string{"https://*.good.test"}} }),
	}
	s.apply(t, config, endpoints)
	client := direct(nil)
	defer client.CloseIdleConnections()

	t.Run("headers and paths", func(t *testing.T) {
		answer, body := ask(t, client, "GET", at(port, "/headers/x?q=1"), "f.test", "", "X-Gone", "1", "X-A", "client", "X-Forwarded-For", "1.2.3.4", "X-Forwarded-Host", "evil.test")
		var got recorded
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			t.Fatal(err, body)
		}
		if got.Host != "other.test" || got.URI != "/%7Benv.PATH%7D/x?q=1" || fmt.Sprint(got.Header["X-A"]) != "[{env.PATH} backend]" || got.Header["X-Gone"] != nil ||
			fmt.Sprint(got.Header["X-Forwarded-For"], got.Header["X-Forwarded-Host"], got.Header["X-Forwarded-Proto"]) != "[127.0.0.1] [f.test] [http]" {
			t.Errorf("%+v", got)
		}
		if from := fmt.Sprint(answer.Header["X-From"]); from != "[route {file.config.json}]" {
			t.Error(from)
		}
	})
	t.Run("redirects", func(t *testing.T) {
		answer, _ := ask(t, client, "GET", at(port, "/redirect/x?q=1"), "f.test", "")
		if to := answer.Header.Get("Location"); answer.StatusCode != 301 || to != "https://f.test/%7Benv.PATH%7D?q=1" {
			t.Errorf("%d %s", answer.StatusCode, to)
		}
	})
	t.Run("timeouts", func(t *testing.T) {
		for _, path := range []string{"/timeout", "/slow"} {
			begin := time.Now()
			if answer, _ := ask(t, client, "GET", at(port, path+"?wait=20s"), "f.test", ""); answer.StatusCode != 504 || time.Since(begin) > 10*time.Second {
				t.Errorf("%s: %d after %s", path, answer.StatusCode, time.Since(begin))
			}
			if answer, _ := ask(t, client, "GET", at(port, path), "f.test", ""); answer.StatusCode != 200 {
				t.Errorf("%s: %d", path, answer.StatusCode)
			}
		}
	})
	t.Run("retries", func(t *testing.T) {
		long := strings.Repeat("x", maxRepeated+1)
		for _, c := range []struct {
			method, path, body string
			fail               int32
			status, sent       int
		}{
			{"GET", "/retry", "", 2, 200, 3}, {"GET", "/retry", "", 3, 503, 3}, {"POST", "/retry", "again", 2, 200, 3}, {"POST", "/retry", long, 1, 503, 1},
			{"GET", "/retry?wait=20s", "", 0, 504, 3}, {"GET", "/headers", "", 1, 503, 1},
		} {
			before := len(one.all())
			one.fail.Store(c.fail)
			answer, _ := ask(t, client, c.method, at(port, c.path), "f.test", c.body)
			one.fail.Store(0)
			got := one.all()[before:]
			if answer.StatusCode != c.status || len(got) != c.sent || got[len(got)-1].Body != c.body {
				t.Errorf("%s %s %.9s: %d after %d requests", c.method, c.path, c.body, answer.StatusCode, len(got))
			}
		}
	})
	t.Run("mirrors", func(t *testing.T) { testMirrors(t, client, one, mirror, port) })
	t.Run("weights", func(t *testing.T) {
		count := map[int]int{}
		for range 80 {
			answer, _ := ask(t, client, "GET", at(port, "/weights"), "f.test", "")
			count[answer.StatusCode]++
		}
		if count[200] < 37 || count[200] > 43 || count[500] < 17 || count[500] > 23 || count[503] != 80-count[200]-count[500] {
			t.Errorf("%v", count)
		}
		if answer, _ := ask(t, client, "GET", at(port, "/nobody"), "f.test", ""); answer.StatusCode != 500 {
			t.Error(answer.StatusCode)
		}
		if answer, body := ask(t, client, "HEAD", at(port, "/dead"), "f.test", ""); answer.StatusCode != 502 || body != "" {
			t.Error(answer.StatusCode, body)
		}
	})
	t.Run("CORS", func(t *testing.T) {
		before := len(one.all())
		for origin, want := range map[string]string{"https://a.good.test": "https://a.good.test", "https://evil.test": ""} {
			if answer, _ := ask(t, client, "GET", at(port, "/cors"), "f.test", "", "Origin", origin); answer.Header.Get("Access-Control-Allow-Origin") != want || answer.StatusCode != 200 {
				t.Errorf("%s: %v", origin, answer.Header)
			}
			answer, _ := ask(t, client, "OPTIONS", at(port, "/cors"), "f.test", "", "Origin", origin, "Access-Control-Request-Method", "GET")
			if answer.Header.Get("Access-Control-Allow-Origin") != want || answer.StatusCode != 204 {
				t.Errorf("%s: %v", origin, answer.Header)
			}
		}
		if got := len(one.all()) - before; got != 2 {
			t.Errorf("the backend has got %d requests", got)
		}
	})
}

// testMirrors: mirrors get what the backend gets, and whatever they do, the client's request goes on.
func testMirrors(t *testing.T, client *http.Client, one, mirror *recorder, port uint16) {
	for _, body := range []string{"", "short", strings.Repeat("x", maxMirrored), strings.Repeat("x", maxMirrored+1)} {
		before, copies := len(one.all()), len(mirror.all())
		for _, wait := range []string{"0s", "1ms"} {
			var reader io.Reader = bytes.NewReader([]byte(body))
			if wait == "1ms" { // without a length
				reader = io.MultiReader(reader)
			}
			request, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, at(port, "/mirror?wait="+wait), reader)
			request.Host = "f.test"
			answer, err := client.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			if answer.StatusCode != 200 {
				t.Error(answer.StatusCode)
			}
		}
		want := 2
		if len(body) > maxMirrored {
			want = 0
		}
		eventually(t, func() bool { return len(mirror.all())-copies == want })
		for i, got := range mirror.all()[copies:] {
			if got.Body != body || got.Host != "f.test" || got.Header.Get("X-A") != "1" || got.Header.Get("X-Forwarded-For") != "127.0.0.1" {
				t.Errorf("copy %d of %d bytes: %d bytes, %s %v", i, len(body), len(got.Body), got.Host, got.Header)
			}
		}
		if got := len(one.all()) - before; got != 2 {
			t.Errorf("%d requests", got)
		}
	}
}

// eventually waits for a condition.
func eventually(t *testing.T, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it never came")
		}
	}
}
