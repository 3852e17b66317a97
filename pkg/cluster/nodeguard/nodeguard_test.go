package nodeguard

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/coracle-dev/coracle/pkg/cluster/join/endpoint"
	"github.com/coracle-dev/coracle/pkg/cluster/pki"
)

func certOf(user, key string) *x509.Certificate {
	return &x509.Certificate{Subject: pkix.Name{CommonName: user}, RawSubjectPublicKeyInfo: []byte(key)}
}

func requestBy(ctx context.Context, cert *x509.Certificate, method, path string) *http.Request {
	r := httptest.NewRequestWithContext(ctx, method, path, nil)
	r.TLS = nil
	if cert != nil {
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}
	}
	return r
}

// keysOf are the keys of a claim after its machine was removed; the next machine with the name has the key now, unless that is "".
func keysOf(t *testing.T, before, now string) endpoint.Keys {
	t.Helper()
	client := fake.NewClientset()
	claims := endpoint.Claims{Client: client}
	adopt := func(key string) {
		if _, err := claims.Adopt(t.Context(), "n", pki.Fingerprint(certOf("", key)), func(*corev1.Node, bool) bool { return true }); err != nil {
			t.Fatal(err)
		}
	}
	adopt(before)
	if err := claims.Revoke(t.Context(), "n", pki.Fingerprint(certOf("", before))); err != nil {
		t.Fatal(err)
	}
	if now != "" {
		adopt(now)
	}
	claim, err := client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(t.Context(), endpoint.ClaimPrefix+"n", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return endpoint.KeysOf(claim)
}

func TestHandler(t *testing.T) {
	served := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	ask := func(g *Guard, cert *x509.Certificate) (int, string) {
		w := httptest.NewRecorder()
		g.Handler(served).ServeHTTP(w, requestBy(t.Context(), cert, http.MethodGet, "/"))
		return w.Code, w.Body.String()
	}
	g := New(func(string) {})
	close(g.synced)
	g.set("n", keysOf(t, "old", "new"))
	for _, test := range []struct {
		cert *x509.Certificate
		code int
		text string
	}{
		{nil, http.StatusTeapot, ""},
		{certOf("system:admin", "old"), http.StatusTeapot, ""},
		{certOf("system:node:other", "old"), http.StatusTeapot, ""},
		{certOf("system:node:n", "new"), http.StatusTeapot, ""},
		{certOf("system:coracle:node:n", "new"), http.StatusTeapot, ""},
		{certOf("system:coracle:node:n", "old"), http.StatusUnauthorized, `"reason":"NodeRemoved"`},
		{certOf("system:node:n", "of the old kubelet"), http.StatusUnauthorized, "is not one of the machine"},
	} {
		if code, text := ask(g, test.cert); code != test.code || !strings.Contains(text, test.text) {
			t.Errorf("%+v: %d %s", test.cert, code, text)
		}
	}
	g.set("n", endpoint.Keys{}) // an administrator has deleted the claim
	if code, _ := ask(g, certOf("system:node:n", "old")); code != http.StatusTeapot {
		t.Error(code)
	}
}

// TestNotSynced: before the claims are known the requests of nodes wait, and at last are refused; everybody else is served.
func TestNotSynced(t *testing.T) {
	served := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	synctest.Test(t, func(t *testing.T) {
		ask := func(g *Guard, user string) <-chan int {
			code := make(chan int, 1)
			go func() {
				w := httptest.NewRecorder()
				g.Handler(served).ServeHTTP(w, requestBy(t.Context(), certOf(user, "k"), http.MethodGet, "/"))
				code <- w.Code
			}()
			return code
		}
		g := New(func(string) {})
		if code := <-ask(g, "system:admin"); code != http.StatusTeapot {
			t.Errorf("an administrator: %d", code)
		}
		began := time.Now()
		if code := <-ask(g, "system:node:n"); code != http.StatusServiceUnavailable || time.Since(began) != syncTimeout {
			t.Errorf("a node, after %s: %d", time.Since(began), code)
		}
		waiting := ask(g, "system:coracle:node:n")
		synctest.Wait()
		select {
		case code := <-waiting:
			t.Errorf("a node is answered %d at once", code)
		default:
			close(g.synced)
			if code := <-waiting; code != http.StatusTeapot {
				t.Errorf("a node that waited: %d", code)
			}
		}
	})
}

// TestOpenRequests: a request ends when its key is not allowed any more, and those of other keys and nodes go on.
func TestOpenRequests(t *testing.T) {
	var disconnected []string
	g := New(func(node string) { disconnected = append(disconnected, node) })
	close(g.synced)
	type watch struct {
		cert *x509.Certificate
		ends bool
		end  chan bool // whether it was ended
	}
	watches := []*watch{{cert: certOf("system:node:n", "old"), ends: true}, {cert: certOf("system:node:n", "of the old kubelet"), ends: true}, {cert: certOf("system:node:n", "new")}, {cert: certOf("system:node:m", "old")}}
	stop, began := make(chan struct{}), make(chan struct{})
	for _, w := range watches {
		w.end = make(chan bool, 1)
		go g.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			began <- struct{}{}
			select {
			case <-r.Context().Done():
				w.end <- true
			case <-stop:
				w.end <- false
			}
		})).ServeHTTP(httptest.NewRecorder(), requestBy(context.Background(), w.cert, http.MethodGet, "/"))
		<-began
	}
	g.set("n", keysOf(t, "old", "new"))
	for _, w := range watches[:2] {
		select {
		case <-w.end:
		case <-time.After(time.Minute):
			t.Error("a request of the removed machine goes on")
		}
	}
	g.set("n", keysOf(t, "old", "new")) // the claim was written again
	close(stop)
	for _, w := range watches[2:] {
		if <-w.end {
			t.Errorf("the request of %s was ended", w.cert.Subject.CommonName)
		}
	}
	if len(disconnected) != 1 || disconnected[0] != "n" {
		t.Errorf("disconnected are %v", disconnected)
	}
}

// TestRun reads the claims that exist, and follows them.
func TestRun(t *testing.T) {
	client := fake.NewClientset()
	claims := endpoint.Claims{Client: client}
	if err := claims.Revoke(t.Context(), "before", ""); err != nil {
		t.Fatal(err)
	}
	heard := make(chan string, 10)
	g := New(func(node string) { heard <- node })
	go g.Run(t.Context(), client)
	<-g.synced
	if _, ok := g.begin("before", &call{cert: certOf("", "k")}); ok {
		t.Error("a machine that was removed before is served")
	}
	for { // the fake API has no events from before the watch
		if err := claims.Revoke(t.Context(), "now", ""); err != nil {
			t.Fatal(err)
		}
		select {
		case first := <-heard:
			if first != "now" {
				t.Errorf("heard of %s", first)
			}
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func TestAuthenticator(t *testing.T) {
	inner := authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		return &authenticator.Response{User: &user.DefaultInfo{Name: "u", Groups: []string{"g"}, Extra: map[string][]string{"a": {"b"}}}}, true, nil
	})
	const path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	for _, test := range []struct {
		cert         *x509.Certificate
		method, path string
		want         string
	}{
		{certOf("system:node:n", "k"), http.MethodPost, path, pki.Fingerprint(certOf("", "k"))},
		{certOf("system:coracle:node:n", "k"), http.MethodPost, path, pki.Fingerprint(certOf("", "k"))},
		{certOf("system:node:n", "k"), http.MethodGet, path, ""},
		{certOf("system:node:n", "k"), http.MethodPost, "/api/v1/nodes", ""},
		{certOf("system:admin", "k"), http.MethodPost, path, ""},
		{nil, http.MethodPost, path, ""},
	} {
		response, ok, err := New(nil).Authenticator(inner).AuthenticateRequest(requestBy(t.Context(), test.cert, test.method, test.path))
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		extra := response.User.GetExtra()
		if got := strings.Join(extra[KeyExtra], ""); got != test.want || strings.Join(extra["a"], "") != "b" || response.User.GetName() != "u" {
			t.Errorf("%+v: %+v", test, response.User)
		}
	}
}

// BenchmarkHandler is the cost of the guard for a request of a node whose name was never revoked, and of everybody else.
func BenchmarkHandler(b *testing.B) {
	g := New(func(string) {})
	close(g.synced)
	h := g.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for name, cert := range map[string]*x509.Certificate{"node": certOf("system:node:n", "k"), "administrator": certOf("system:admin", "k")} {
		b.Run(name, func(b *testing.B) {
			r, w := requestBy(b.Context(), cert, http.MethodGet, "/"), httptest.NewRecorder()
			for b.Loop() {
				h.ServeHTTP(w, r)
			}
		})
	}
}
