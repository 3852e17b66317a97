package helm

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// fakeAPI keeps objects of the core group in memory, enough for Helm to install a chart.
type fakeAPI struct {
	*httptest.Server
	mu      sync.Mutex
	objects map[string]map[string]any // by path
	onWrite func()                    // is called before each write; may be nil
	refuse  func(*http.Request) bool  // selects requests that fail; may be nil
}

func newAPI(t *testing.T) *fakeAPI {
	f := &fakeAPI{objects: map[string]map[string]any{}}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

// names are those of the objects of a kind.
func (f *fakeAPI) names(plural string) (names []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for at := range f.objects {
		if path.Base(path.Dir(at)) == plural {
			names = append(names, path.Base(at))
		}
	}
	return slices.Sorted(slices.Values(names))
}

// ServeHTTP answers discovery, and reads and writes objects.
func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if answer, ok := map[string]string{
		"/version": `{"major":"1","minor":"37","gitVersion":"v1.37.0"}`,
		"/api":     `{"kind":"APIVersions","versions":["v1"]}`,
		"/apis":    `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`,
		"/api/v1": `{"kind":"APIResourceList","groupVersion":"v1","resources":[
			{"name":"configmaps","namespaced":true,"kind":"ConfigMap","verbs":["get","patch"]}]}`,
	}[r.URL.Path]; ok {
		_, _ = io.WriteString(w, answer)
		return
	}
	if r.Method != http.MethodGet && f.onWrite != nil {
		f.onWrite()
	}
	if f.refuse != nil && f.refuse(r) {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	at := r.URL.Path
	kind := map[string]string{"secrets": "Secret", "configmaps": "ConfigMap", "serviceaccounts": "ServiceAccount"}[path.Base(at)]
	switch {
	case r.Method == http.MethodGet && kind != "":
		f.list(w, r, kind)
		return
	case strings.HasPrefix(at, "/apis/"): // there are no HelmCharts
	case r.Method == http.MethodPost, r.Method == http.MethodPut, r.Method == http.MethodPatch:
		object, err := decodeBody(r)
		if err != nil {
			w.WriteHeader(http.StatusUnsupportedMediaType)
			return
		}
		if r.Method == http.MethodPost {
			at = path.Join(at, object["metadata"].(map[string]any)["name"].(string))
		}
		f.objects[at] = object
	}
	object, ok := f.objects[at]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		object = map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": http.StatusNotFound}
	}
	if r.Method == http.MethodDelete {
		delete(f.objects, at)
	}
	_ = json.NewEncoder(w).Encode(object)
}

// decodeBody reads an object in JSON, YAML or protobuf.
func decodeBody(r *http.Request) (map[string]any, error) {
	var object map[string]any
	data, err := io.ReadAll(r.Body)
	if err != nil || yaml.Unmarshal(data, &object) == nil {
		return object, err
	}
	typed, _, err := scheme.Codecs.UniversalDeserializer().Decode(data, nil, nil)
	if err != nil {
		return nil, err
	}
	object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	return object, err
}

// list answers with the objects of a kind that match the selector, and only their metadata if that is asked for.
func (f *fakeAPI) list(w io.Writer, r *http.Request, kind string) {
	list := map[string]any{"kind": kind + "List", "apiVersion": "v1"}
	if strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadataList") {
		list["kind"], list["apiVersion"] = "PartialObjectMetadataList", "meta.k8s.io/v1"
	}
	items := []any{}
	selector, _ := labels.Parse(r.URL.Query().Get("labelSelector"))
	for _, at := range slices.Sorted(maps.Keys(f.objects)) {
		has, _, _ := unstructured.NestedStringMap(f.objects[at], "metadata", "labels")
		if path.Dir(at) == r.URL.Path && selector.Matches(labels.Set(has)) {
			items = append(items, f.objects[at])
		}
	}
	list["items"] = items
	_ = json.NewEncoder(w).Encode(list)
}

// inlineChart is a HelmChart default/x with an archive in it.
func inlineChart(archive []byte) *chart {
	ch := &chart{}
	ch.Name, ch.Namespace, ch.Spec.ChartContent = "x", "default", base64.StdEncoding.EncodeToString(archive)
	return ch
}
