package gateway

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	v1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/routepolicy"
	"github.com/coracle-dev/coracle/pkg/addons/gateway/translate"
	"github.com/coracle-dev/coracle/pkg/core/addon"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// definer is an API server that serves some kinds of the Gateway API.
type definer struct {
	mu      sync.Mutex
	served  []string
	garbled string        // a kind whose objects are not what v1 says
	stuck   string        // a kind whose list is not answered
	failing string        // a kind whose list is an error
	asked   int           // requests for the kinds
	unread  chan struct{} // receives a value for each list of garbled
	missed  chan struct{} // receives a value for each request for what is not served; nil if nobody wants to know
}

func (d *definer) serve(plurals ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.served = append(d.served, plurals...)
}

func (d *definer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	served, garbled, stuck, failing := slices.Clone(d.served), d.garbled, d.stuck, d.failing
	plural, version := path.Base(r.URL.Path), v1.GroupVersion.String()
	if plural == "v1" {
		d.asked++
	}
	d.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
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
	case plural == stuck:
		<-r.Context().Done()
	case plural == failing:
		http.Error(w, "the conversion fails", http.StatusInternalServerError)
	case plural == garbled:
		select {
		case d.unread <- struct{}{}:
		case <-r.Context().Done():
		}
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
	f.asked = time.Now().Add(-askAgain)
	if err := f.refresh(t.Context()); err != nil || len(f.lacking) > 0 || !f.served() {
		t.Errorf("%v %v", err, f.lacking)
	}
}

// TestLaterKinds: kinds that are installed later are watched, those that are removed are not, and one whose objects cannot be read holds up nothing.
func TestLaterKinds(t *testing.T) {
	d := &definer{garbled: "tlsroutes", unread: make(chan struct{}, 9)}
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
	asked := d.asked
	if err := need(); err != nil || d.asked != asked {
		t.Errorf("%v, asked %d times more", err, d.asked-asked)
	}
	d.serve("grpcroutes")
	f.asked = time.Now().Add(-askAgain)
	if err := need(); err != nil || len(f.lacking) > 0 || !f.rest.has("grpcroutes") {
		t.Errorf("%v %v %v", err, f.lacking, f.rest)
	}
	f.define("tlsroutes")
	f.late["tlsroutes"] = time.Now().Add(-kindTimeout)
	f.rest["tlsroutes"] = f.watch(t.Context(), "tlsroutes", attachable()["tlsroutes"])
	for range 2 { // the second list comes after the error of the first
		<-d.unread
	}
	if err := need(); err != nil || !slices.Equal(f.lacking, []string{"tlsroutes"}) {
		t.Errorf("%v %v", err, f.lacking)
	}
	_ = f.definitions.Delete(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "httproutes." + v1.GroupName}}) // in memory
	if err := need(); err != nil || f.rest.has("httproutes") || !f.rest.has("grpcroutes") {
		t.Errorf("%v %v", err, f.rest)
	}
}

// TestSlowKinds: a kind whose objects take long, or whose list is an error, is not taken for one without objects, however long that lasts: its routes stay.
func TestSlowKinds(t *testing.T) {
	d := &definer{stuck: "httproutes", failing: "grpcroutes"}
	d.serve(gatewayClasses, gateways, "httproutes", "grpcroutes")
	for _, plural := range []string{"httproutes", "grpcroutes"} {
		f := api(t, d)
		f.define(gatewayClasses, gateways, plural)
		if err := f.refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.rest[plural] = f.watch(t.Context(), plural, attachable()[plural])
		f.late[plural] = time.Now().Add(-kindTimeout)
		if err := f.need(t.Context(), f.feed.client, true); err == nil || !strings.Contains(err.Error(), plural) || len(f.lacking) > 0 {
			t.Errorf("%s: %v, goes on without %v", plural, err, f.lacking)
		}
	}
}

// TestIngressesDuringSlowKinds: an Ingress is served while a kind of the Gateway API is not known, and what was served of the Gateway API is still served.
// When nothing was known before, nothing changes.
func TestIngressesDuringSlowKinds(t *testing.T) {
	d := &definer{stuck: "grpcroutes"}
	d.serve(gatewayClasses, gateways, "grpcroutes")
	f := api(t, d)
	f.define(gatewayClasses, gateways, "grpcroutes")
	if !f.feed.start(t.Context()) {
		t.Fatal("Ingresses are not known")
	}
	files := gateway.Files(t.TempDir())
	noPolicies := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{routepolicy.API(): "RoutePolicyList"})
	w := &working{feed: f.feed, api: f, policies: &policyFeed{feed: f.feed, dynamic: noPolicies}, writer: gateway.Writer{Files: files}}
	w.outcome, w.Addresses, w.Shares = newOutcome(), addon.NewGatewayAddresses(false, false), addon.NewGatewayShares()
	edge := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge", Labels: map[string]string{kube.GatewayLabel: "true"}}}
	if _, err := f.feed.client.CoreV1().Nodes().Create(t.Context(), edge, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = f.feed.need(t.Context(), false) // it only stops
		_ = w.policies.need(t.Context(), false)
	}()
	ours := &v1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "coracle"}, Spec: v1.GatewayClassSpec{ControllerName: translate.Controller}}
	front := &v1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "front", UID: "front"}}
	front.Spec.GatewayClassName, front.Spec.Listeners = "coracle", []v1.Listener{{Name: "http", Port: 8080, Protocol: v1.HTTPProtocolType}}
	if err := f.refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, _ = f.first[gatewayClasses].store.Add(ours), f.first[gateways].store.Add(front) // in memory
	ports := func() (out []uint16) {
		t.Helper()
		data, err := os.ReadFile(files.Config())
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		var c gateway.Config
		if err = errors.Join(err, json.Unmarshal(data, &c)); err != nil {
			t.Fatal(err)
		}
		for _, l := range c.Listeners {
			out = append(out, l.Port)
		}
		return out
	}
	if err := w.sync(t.Context()); err == nil || len(ports()) > 0 {
		t.Errorf("before anything is known: %v, %v", err, ports())
	}
	known := f.objects()
	w.known = &known
	f.age(t, "grpcroutes") // so that nothing waits for it
	class := &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: "coracle"}, Spec: networkingv1.IngressClassSpec{Controller: translate.Controller}}
	web := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "web"}, Spec: networkingv1.IngressSpec{IngressClassName: &class.Name}}
	_, _ = f.feed.classes.Add(class), f.feed.ingresses.Add(web) // in memory
	if err := w.sync(t.Context()); err == nil || !slices.Contains(ports(), 80) || !slices.Contains(ports(), 8080) {
		t.Errorf("%v, ports %v", err, ports())
	}
	share, _ := w.Shares.Of("edge")
	if other, _ := w.Shares.Of("another"); !strings.Contains(string(share), `"port":8080`) || !strings.Contains(string(share), `"port":80,`) || other != nil {
		t.Errorf("an agent that is a gateway serves %s, another %s", share, other)
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
