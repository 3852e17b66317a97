package manifests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	embedded "github.com/coracle-dev/coracle/manifests"
)

// api is an API server as far as the deployer sees one: objects by path, that replace each other.
type api struct {
	t      *testing.T
	config *rest.Config

	mu      sync.Mutex
	objects map[string]*unstructured.Unstructured
	applied []string       // paths, since the last look
	refuse  map[string]int // by path: the status to answer
	field   string         // that cannot change, named in answers of 422; without one these are a policy's
	boats   bool           // whether the kind Boat is served
	uids    int
	now     time.Time // the deployers' clock
}

func newAPI(t *testing.T) *api {
	a := &api{t: t, now: time.Now(), objects: map[string]*unstructured.Unstructured{}, refuse: map[string]int{}}
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	a.config = &rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json", AcceptContentTypes: "application/json"}}
	return a
}

// start is a deployer as after a start of coracle, its embedded files not yet applied.
func (a *api) start(dir string, files ...embedded.File) *deployer {
	a.t.Helper()
	quiet := logrus.New()
	quiet.SetLevel(logrus.PanicLevel)
	d := &deployer{
		Manifests: Manifests{Dir: dir, Node: "n1", Embedded: files},
		now:       func() time.Time { return a.now },
		client:    kubernetes.NewForConfigOrDie(a.config), files: map[fileID]*file{}, log: quiet.WithField("component", "manifests"),
	}
	d.applier.dynamic = dynamic.NewForConfigOrDie(a.config)
	d.applier.discovery = discovery.NewDiscoveryClientForConfigOrDie(a.config)
	var err error
	if d.inventory, err = loadInventory(a.t.Context(), d.client, "n1"); err != nil {
		a.t.Fatal(err)
	}
	for _, f := range files {
		d.add(newFile(fileID{name: f.Name}, f.Data))
	}
	return d
}

// look returns which objects exist, the inventory aside, and which were applied since the last look.
func (a *api) look() (exists, applied string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var names []string
	for _, o := range a.objects {
		if !strings.HasPrefix(o.GetName(), inventoryPrefix) {
			names = append(names, o.GetName())
		}
	}
	slices.Sort(names)
	slices.Sort(a.applied)
	applied, a.applied = strings.Join(a.applied, " "), nil
	return strings.Join(names, " "), applied
}

// ServeHTTP answers like an API server.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	answer := func(code int, body any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(body)
	}
	fail := func(code int) {
		reason := reasons[code]
		if code == http.StatusConflict && r.Method == http.MethodPost {
			reason = metav1.StatusReasonAlreadyExists
		}
		details := &metav1.StatusDetails{Causes: []metav1.StatusCause{{Message: "no", Field: a.field}}}
		answer(code, metav1.Status{TypeMeta: v1("Status"), Status: "Failure", Code: int32(code), Message: fmt.Sprintf("%s answers %d", r.URL.Path, code), Reason: reason, Details: details})
	}
	path := r.URL.Path
	if doc := a.discover(path); doc != nil {
		answer(http.StatusOK, doc)
		return
	}
	var body unstructured.Unstructured
	if r.Method != http.MethodGet && r.Method != http.MethodDelete {
		if err := json.NewDecoder(r.Body).Decode(&body.Object); err != nil {
			fail(http.StatusBadRequest)
			return
		}
	}
	if r.Method == http.MethodPost {
		path += "/" + body.GetName()
	}
	old := a.objects[path]
	code := a.refuse[path]
	if code == http.StatusUnprocessableEntity && (r.Method != http.MethodPatch || a.field != "" && old == nil) {
		code = 0 // there is nothing to validate, or no former value of the field
	}
	switch {
	case code != 0:
		fail(code)
	case r.Method == http.MethodGet && old != nil:
		answer(http.StatusOK, old.Object)
	case r.Method == http.MethodGet && strings.HasSuffix(path, "/configmaps"):
		answer(http.StatusOK, a.list(path))
	case r.Method == http.MethodGet:
		fail(http.StatusNotFound)
	case r.Method == http.MethodDelete:
		var options metav1.DeleteOptions
		_ = json.NewDecoder(r.Body).Decode(&options)
		switch p := options.Preconditions; {
		case old == nil:
			fail(http.StatusNotFound)
		case p == nil && !strings.HasPrefix(old.GetName(), inventoryPrefix):
			a.t.Errorf("%s is deleted, whoever made it", path)
			fail(http.StatusBadRequest)
		case p != nil && p.UID != nil && *p.UID != old.GetUID():
			fail(http.StatusConflict)
		default:
			delete(a.objects, path)
			answer(http.StatusOK, metav1.Status{TypeMeta: v1("Status"), Status: "Success"})
		}
	case r.Method == http.MethodPost && old != nil:
		fail(http.StatusConflict)
	case r.Method == http.MethodPatch && r.URL.Query().Get("force") != "true" && old != nil && old.GetLabels()["edited"] != "":
		fail(http.StatusConflict)
	case r.Method == http.MethodPut && old == nil:
		fail(http.StatusNotFound)
	default:
		if manager := r.URL.Query().Get("fieldManager"); r.Method == http.MethodPatch {
			body.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: manager, Operation: metav1.ManagedFieldsOperationApply}})
		}
		a.put(path, &body, old)
		answer(http.StatusOK, body.Object)
	}
}

var reasons = map[int]metav1.StatusReason{
	http.StatusNotFound: metav1.StatusReasonNotFound, http.StatusConflict: metav1.StatusReasonConflict,
	http.StatusUnprocessableEntity: metav1.StatusReasonInvalid, http.StatusServiceUnavailable: metav1.StatusReasonServiceUnavailable,
	http.StatusBadRequest: metav1.StatusReasonBadRequest,
}

func v1(kind string) metav1.TypeMeta { return metav1.TypeMeta{APIVersion: "v1", Kind: kind} }

func (a *api) put(path string, o, old *unstructured.Unstructured) {
	if old != nil {
		o.SetUID(old.GetUID())
	} else {
		a.uids++
		o.SetUID(types.UID(fmt.Sprint("uid-", a.uids)))
	}
	a.objects[path] = o
	if !strings.HasPrefix(o.GetName(), inventoryPrefix) {
		a.applied = append(a.applied, o.GetName())
	}
}

func (a *api) list(path string) any {
	list := unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMapList"}}
	for name, o := range a.objects {
		if strings.HasPrefix(name, path+"/") && o.GetLabels()[inventoryLabel] != "" {
			list.Items = append(list.Items, *o)
		}
	}
	return &list
}

// discover answers about kinds: only Boat is interesting.
func (a *api) discover(path string) any {
	group := metav1.APIGroup{Name: "example.com", Versions: []metav1.GroupVersionForDiscovery{{GroupVersion: "example.com/v1", Version: "v1"}}}
	switch {
	case path == "/api":
		return metav1.APIVersions{TypeMeta: v1("APIVersions")}
	case path == "/apis" && a.boats:
		return metav1.APIGroupList{TypeMeta: v1("APIGroupList"), Groups: []metav1.APIGroup{group}}
	case path == "/apis":
		return metav1.APIGroupList{TypeMeta: v1("APIGroupList")}
	case path == "/apis/example.com/v1":
		return metav1.APIResourceList{TypeMeta: v1("APIResourceList"), GroupVersion: "example.com/v1", APIResources: []metav1.APIResource{
			{Name: "boats", Kind: "Boat", Namespaced: true, Verbs: metav1.Verbs{"patch"}}}}
	}
	return nil
}
