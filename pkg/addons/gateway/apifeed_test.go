package gateway

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	v1 "sigs.k8s.io/gateway-api/apis/v1"
)

// definer is an API server that serves some kinds of the Gateway API.
type definer struct {
	mu      sync.Mutex
	served  []string
	garbled string        // a kind whose objects are not what v1 says
	missed  chan struct{} // receives a value for each request for what is not served; nil if nobody wants to know
}

func (d *definer) serve(plurals ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.served = append(d.served, plurals...)
}

func (d *definer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	served, garbled := slices.Clone(d.served), d.garbled
	d.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	plural, version := path.Base(r.URL.Path), v1.GroupVersion.String()
	answer := func(o map[string]any) {
		o["apiVersion"] = version
		_ = json.NewEncoder(w).Encode(o) // the client sees what is missing
	}
	switch {
	case plural == "v1":
		var list []map[string]any
		for _, s := range served {
			list = append(list, map[string]any{"name": s})
		}
		answer(map[string]any{"resources": list})
	case !slices.Contains(served, plural):
		http.NotFound(w, r)
		if d.missed != nil {
			d.missed <- struct{}{}
		}
	case r.URL.Query().Get("sendInitialEvents") != "":
		http.Error(w, "only lists", http.StatusUnprocessableEntity)
	case r.URL.Query().Get("watch") != "":
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	case plural == garbled:
		answer(map[string]any{"kind": "TLSRouteList", "metadata": map[string]any{"resourceVersion": "1"}, "items": []any{map[string]any{"spec": 5}}})
	default:
		kinds := map[string]string{gatewayClasses: "GatewayClass", gateways: "Gateway", "httproutes": "HTTPRoute", "grpcroutes": "GRPCRoute"}
		answer(map[string]any{"kind": kinds[plural] + "List", "metadata": map[string]any{"resourceVersion": "1"}, "items": []any{}})
	}
}

// api returns a feed of an API server that serves some kinds.
func api(t *testing.T, d *definer) *apiFeed {
	t.Helper()
	server := httptest.NewServer(d)
	t.Cleanup(server.Close)
	f := newAPIFeed(newFeed(fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})))
	var err error
	if f.client, err = apiClient(&rest.Config{Host: server.URL, QPS: -1}); err != nil {
		t.Fatal(err)
	}
	f.definitions = cache.NewStore(cache.MetaNamespaceKeyFunc)
	t.Cleanup(func() {
		f.first.endAll()
		f.rest.endAll()
	})
	return f
}

func (f *apiFeed) define(plurals ...string) {
	for _, plural := range plurals {
		_ = f.definitions.Add(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: plural + "." + v1.GroupName}}) // in memory
	}
}

// age makes kinds late for longer than the gateway waits.
func (f *apiFeed) age(t *testing.T, plurals ...string) {
	t.Helper()
	for _, plural := range plurals {
		if f.late[plural].IsZero() {
			t.Errorf("%s is not late: %v", plural, f.late)
		}
		f.late[plural] = time.Now().Add(-kindTimeout)
	}
}

// TestOldDefinitions: definitions that are not served as v1 hold nothing up for longer than a minute, and are used when they are served.
func TestOldDefinitions(t *testing.T) {
	d := &definer{}
	f := api(t, d)
	f.define(gatewayClasses, gateways)
	if err := f.refresh(t.Context()); err == nil {
		t.Error("they are not waited for")
	}
	f.age(t, gatewayClasses, gateways)
	if err := f.refresh(t.Context()); err != nil || len(f.lacking) != 2 || f.served() {
		t.Errorf("%v %v", err, f.lacking)
	}
	if err := f.need(t.Context(), f.feed.client, true); err != nil || len(f.rest) > 0 {
		t.Errorf("%v %v", err, f.rest)
	}
	d.serve(gatewayClasses, gateways)
	if err := f.refresh(t.Context()); err != nil || len(f.lacking) > 0 || !f.served() {
		t.Errorf("%v %v", err, f.lacking)
	}
}

// TestLaterKinds: kinds that are installed later are watched, those that are removed are not, and one whose objects cannot be read holds up nothing.
func TestLaterKinds(t *testing.T) {
	d := &definer{garbled: "tlsroutes"}
	d.serve(gatewayClasses, gateways, "httproutes", "tlsroutes")
	f := api(t, d)
	f.define(gatewayClasses, gateways, "httproutes", "grpcroutes")
	need := func() error {
		if err := f.refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		return f.need(t.Context(), f.feed.client, true)
	}
	if err := need(); err == nil {
		t.Error("a kind is not waited for")
	}
	f.age(t, "grpcroutes")
	if err := need(); err != nil || !slices.Equal(f.lacking, []string{"grpcroutes"}) || !f.rest.has("httproutes") || !f.rest.has(namespaces) {
		t.Errorf("%v %v %v", err, f.lacking, f.rest)
	}
	d.serve("grpcroutes")
	if err := need(); err != nil || len(f.lacking) > 0 || !f.rest.has("grpcroutes") {
		t.Errorf("%v %v %v", err, f.lacking, f.rest)
	}
	f.define("tlsroutes")
	f.late["tlsroutes"] = time.Now().Add(-kindTimeout)
	f.rest["tlsroutes"] = f.watch(t.Context(), "tlsroutes", attachable()["tlsroutes"])
	if err := need(); err != nil || !slices.Equal(f.lacking, []string{"tlsroutes"}) {
		t.Errorf("%v %v", err, f.lacking)
	}
	_ = f.definitions.Delete(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "httproutes." + v1.GroupName}}) // in memory
	if err := need(); err != nil || f.rest.has("httproutes") || !f.rest.has("grpcroutes") {
		t.Errorf("%v %v", err, f.rest)
	}
}

// TestRemovedDefinitions: a watch of a kind that is not there any more writes no errors until it is stopped.
func TestRemovedDefinitions(t *testing.T) {
	d := &definer{missed: make(chan struct{})}
	f := api(t, d)
	var said atomic.Int32
	logger := funcr.New(func(_, args string) { said.Add(1); t.Log(args) }, funcr.Options{})
	w := f.watch(klog.NewContext(t.Context(), logger), "httproutes", attachable()["httproutes"])
	for range 4 { // the third request comes after the error of the first list and watch
		<-d.missed
	}
	w.stop()
	go func() {
		for range d.missed { // so that none is held up
		}
	}()
	if n := said.Load(); n > 0 {
		t.Errorf("%d lines", n)
	}
}
