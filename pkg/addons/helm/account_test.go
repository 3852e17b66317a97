package helm

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// user is whom requests impersonate; "" is the administrator.
func user(r *http.Request) string { return r.Header.Get("Impersonate-User") }

const deployer = "system:serviceaccount:x:deployer"

// guarded is an API that has ServiceAccount x/deployer and records who asks for what.
type guarded struct {
	*fakeAPI
	mu   sync.Mutex
	asks []string // USER METHOD PATH, each once
}

func newGuarded(t *testing.T) *guarded {
	g := &guarded{fakeAPI: newAPI(t)}
	g.objects["/api/v1/namespaces/x/serviceaccounts/deployer"] = map[string]any{
		"kind": "ServiceAccount", "apiVersion": "v1", "metadata": map[string]any{"name": "deployer", "namespace": "x"},
	}
	all := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		if ask := user(r) + " " + r.Method + " " + r.URL.Path; !slices.Contains(g.asks, ask) {
			g.asks = append(g.asks, ask)
		}
		g.mu.Unlock()
		g.fakeAPI.ServeHTTP(w, r)
	}))
	t.Cleanup(all.Close)
	g.Server = all
	return g
}

// reconcile reconciles HelmChart x/x as it is, and returns it.
func (g *guarded) reconcile(t *testing.T, u *unstructured.Unstructured, allowed ...string) (*unstructured.Unstructured, error) {
	t.Helper()
	b := newBench([]*unstructured.Unstructured{u})
	real := onAPI(t, g.fakeAPI).clients
	real.dynamic = b.clients.dynamic
	b.clients, b.refs, b.limits, b.Namespaces = real, &references{clients: real, changed: b.changed}, patient, allowed
	err := b.reconcile(t.Context(), cache.NewObjectName("x", "x"))
	return b.now(t, "x"), err
}

// tenants is a HelmChart x/x that names every kind of object that the controller reads itself.
func tenants(t *testing.T) *unstructured.Unstructured {
	return object("x", map[string]any{
		"chartContent": base64.StdEncoding.EncodeToString(configMapChart(t, "one", "y")), "serviceAccountName": "deployer",
		"valuesSecrets":   []any{map[string]any{"name": "values", "keys": []any{"k"}, "ignoreUpdates": true}},
		"targetNamespace": "y", "createNamespace": true,
	})
}

// own reports whether the controller asks this for itself: it writes events, looks whether there is an account, looks whether
// the namespace is being deleted, and watches metadata.
func own(ask string) bool {
	return slices.Contains([]string{" POST /api/v1/namespaces/x/events", " GET /api/v1/namespaces/x/serviceaccounts",
		" GET /api/v1/namespaces/x/secrets", " GET /api/v1/namespaces/x"}, ask) || strings.HasPrefix(ask, " GET /api/v1/namespaces/x/serviceaccounts/")
}

// TestEverythingIsImpersonated: from the first install to the end, nothing is done for a chart with the administrator's
// permissions but looking for its ServiceAccount, telling events and watching for changes.
func TestEverythingIsImpersonated(t *testing.T) {
	g := newGuarded(t)
	u, err := g.reconcile(t, tenants(t))
	if err != nil {
		t.Fatal(err)
	}
	step := func(what string, change func(), works bool) {
		t.Helper()
		change()
		if u, err = g.reconcile(t, u); (err == nil) != works {
			t.Fatalf("%s: %v", what, err)
		}
	}
	content := func(data string) {
		_ = unstructured.SetNestedField(u.Object, base64.StdEncoding.EncodeToString(configMapChart(t, "one", data)), "spec", "chartContent")
	}
	step("an upgrade", func() { content("z") }, true)
	g.refuse = func(r *http.Request) bool {
		return r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/configmaps/two")
	}
	step("an upgrade that is rolled back", func() {
		_ = unstructured.SetNestedField(u.Object, base64.StdEncoding.EncodeToString(configMapChart(t, "two", "z")), "spec", "chartContent")
	}, true)
	if reason := partial(u).Status.reason(); reason != reasonRolledBack {
		t.Fatalf("the reason is %s", reason)
	}
	g.refuse = nil
	step("a Secret that is missing", func() {
		content("another")
		_ = unstructured.SetNestedField(u.Object, map[string]any{"name": "login"}, "spec", "authSecret")
	}, false)
	step("one that cannot be decoded", func() { _ = unstructured.SetNestedField(u.Object, "300", "spec", "timeout") }, false)
	step("its end", func() { u.SetDeletionTimestamp(new(metav1.Now())) }, true)
	if names := g.names("configmaps"); len(names) > 0 || len(u.GetFinalizers()) > 0 {
		t.Errorf("objects are %v, finalizers %v", names, u.GetFinalizers())
	}
	for _, ask := range g.asks {
		if !strings.HasPrefix(ask, deployer+" ") && !own(ask) {
			t.Errorf("as the administrator: %s", ask)
		}
	}
	if !slices.Contains(g.asks, deployer+" GET /api/v1/namespaces/x/secrets/values") {
		t.Errorf("asked %q", g.asks)
	}
}

// TestAccountIsNeeded: what is refused is not read, fetched, applied or removed with anybody's permissions.
func TestAccountIsNeeded(t *testing.T) {
	for _, tt := range []struct {
		name    string
		account any
		allowed []string
		want    string
	}{
		{"another namespace", nil, []string{"kube-system"}, "needs spec.serviceAccountName"},
		{"one that is missing", "nobody", nil, "there is no ServiceAccount nobody"},
		{"no name", "../deployer", nil, "is not the name"},
		{"another user's name", "deployer:x", nil, "is not the name"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newGuarded(t)
			u, err := g.reconcile(t, tenants(t))
			if err != nil {
				t.Fatal(err)
			}
			g.asks = nil
			_ = unstructured.SetNestedField(u.Object, tt.account, "spec", "serviceAccountName")
			_ = unstructured.SetNestedField(u.Object, "other", "spec", "version")
			for _, change := range []func(){
				func() {},
				func() { _ = unstructured.SetNestedField(u.Object, "300", "spec", "timeout") }, // not decodable
				func() { u.SetDeletionTimestamp(new(metav1.Now())) },
				func() { unstructured.RemoveNestedField(u.Object, "spec", "timeout") },
			} {
				change()
				if u, err = g.reconcile(t, u, tt.allowed...); err == nil || !slices.Contains(u.GetFinalizers(), finalizer) {
					t.Errorf("%v; finalizers are %v", err, u.GetFinalizers())
				}
			}
			if status := partial(u).Status; status.reason() != reasonNoAccount || !strings.Contains(status.Conditions[1].Message, tt.want) {
				t.Errorf("status is %+v", status)
			}
			for _, ask := range g.asks {
				if !own(ask) {
					t.Errorf("asked: %s", ask)
				}
			}
			if names := g.names("configmaps"); !slices.Equal(names, []string{"one"}) {
				t.Errorf("objects are %v", names)
			}
		})
	}
	g := newGuarded(t)
	if _, err := g.reconcile(t, object("x", map[string]any{"chartContent": base64.StdEncoding.EncodeToString(configMapChart(t, "one", "y"))}), "kube-system", "x"); err != nil {
		t.Errorf("a namespace that is listed: %v", err)
	}
}

// TestLostWithNamespace: a namespace whose accounts are deleted already must not wait for its charts.
func TestLostWithNamespace(t *testing.T) {
	g := newGuarded(t)
	u, err := g.reconcile(t, tenants(t))
	if err != nil {
		t.Fatal(err)
	}
	u.SetDeletionTimestamp(new(metav1.Now()))
	delete(g.objects, "/api/v1/namespaces/x/serviceaccounts/deployer")
	namespace := map[string]any{"kind": "Namespace", "apiVersion": "v1", "metadata": map[string]any{"name": "x"}}
	g.objects["/api/v1/namespaces/x"] = namespace
	if u, err = g.reconcile(t, u); err == nil || len(u.GetFinalizers()) == 0 {
		t.Errorf("the namespace stays: %v, finalizers are %v", err, u.GetFinalizers())
	}
	namespace["metadata"].(map[string]any)["deletionTimestamp"] = "2026-01-01T00:00:00Z"
	if u, err = g.reconcile(t, u); err != nil || len(u.GetFinalizers()) > 0 {
		t.Errorf("the namespace ends: %v, finalizers are %v", err, u.GetFinalizers())
	}
}

// TestChildCannotChooseItsUser: what the child says about users does not reach the API server.
func TestChildCannotChooseItsUser(t *testing.T) {
	var got http.Header
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"ServiceAccount","apiVersion":"v1"}`))
	}))
	defer api.Close()
	b := newBench(nil)
	var err error
	if b.clients, err = newClients(&rest.Config{Host: api.URL, BearerToken: "administrator"}); err != nil {
		t.Fatal(err)
	}
	ch := &chart{}
	ch.Namespace, ch.Spec.ServiceAccountName = "x", "deployer"
	as, err := b.as(t.Context(), ch)
	if err != nil {
		t.Fatal(err)
	}
	file, err := b.serveAPI(t.Context(), as)
	if err != nil {
		t.Fatal(err)
	}
	child, err := connectToParent(file)
	if err != nil {
		t.Fatal(err)
	}
	r := &http.Request{Method: http.MethodGet, URL: &url.URL{Scheme: "http", Host: "kubernetes", Path: "/version"}, Header: http.Header{
		"Impersonate-User": {"system:admin"}, "Impersonate-Group": {"system:masters"}, "Impersonate-Uid": {"1"},
		"Impersonate-Extra-Scopes": {"all"}, "Authorization": {"Bearer another"},
	}}
	answer, err := child.transport.RoundTrip(r.WithContext(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	for name, want := range map[string]string{"Impersonate-User": deployer, "Impersonate-Group": "", "Impersonate-Uid": "", "Impersonate-Extra-Scopes": "", "Authorization": "Bearer administrator"} {
		if text := strings.Join(got.Values(name), ","); text != want {
			t.Errorf("%s is %q, not %q", name, text, want)
		}
	}
}
