package apiserver

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/emicklei/go-restful/v3"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// thing is the only type of the API that is documented here.
type thing struct{ Name string }

// documented is an openAPI of two services. It counts how often the schemas were made.
func documented(made *int) *openAPI {
	name := func(name string) (string, spec.Extensions) { return name[strings.LastIndex(name, "/")+1:], nil }
	definitions := func(common.ReferenceCallback) map[string]common.OpenAPIDefinition {
		*made++
		return map[string]common.OpenAPIDefinition{
			"github.com/coracle-dev/coracle/pkg/kubernetes/apiserver.thing": {Schema: spec.Schema{SchemaProps: spec.SchemaProps{
				Type: []string{"object"}, Properties: map[string]spec.Schema{"Name": *spec.StringProperty()}}}},
		}
	}
	operation := func(r common.Route) (string, []string, error) { return r.OperationName(), nil, nil }
	o := &openAPI{
		container: restful.NewContainer(),
		v2: &common.Config{Info: &spec.Info{}, GetDefinitions: definitions, GetDefinitionName: name,
			GetOperationIDAndTagsFromRoute: operation},
		v3: &common.OpenAPIV3Config{Info: &spec.Info{}, GetDefinitions: definitions, GetDefinitionName: name,
			GetOperationIDAndTagsFromRoute: operation},
	}
	for _, root := range []string{"/apis/a.example.org/v1", "/apis/b.example.org/v1"} {
		service := new(restful.WebService).Path(root).Produces("application/json")
		service.Route(service.GET("/things/{name}").Operation("get"+root).To(func(*restful.Request, *restful.Response) {}).
			Param(service.PathParameter("name", "its name").DataType("string")).
			Writes(thing{}).Returns(http.StatusOK, "OK", thing{}))
		o.container.Add(service)
	}
	o.index("fingerprint")
	return o
}

func (o *openAPI) get(path string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	switch {
	case strings.HasPrefix(path, "/openapi/v2"):
		o.serveV2(w, r)
	case path == "/openapi/v3":
		o.serveDiscovery(w, r)
	default:
		o.serveV3(w, r)
	}
	return w
}

func TestOpenAPI(t *testing.T) {
	made := 0
	o := documented(&made)
	var found handler3.OpenAPIV3Discovery
	if err := json.Unmarshal(o.get("/openapi/v3").Body.Bytes(), &found); err != nil {
		t.Fatal(err)
	}
	if len(found.Paths) != 2 || made != 0 {
		t.Fatalf("discovery lists %v and made schemas %d times", found.Paths, made)
	}
	const gv = "apis/a.example.org/v1"
	named := found.Paths[gv].ServerRelativeURL
	current := o.get(named)
	etag := current.Header().Get("Etag")

	for name, c := range map[string]struct {
		path   string
		header []string
		status int
		want   string // in the body
	}{
		"by its hash":      {named, nil, 200, "thing"},
		"without a hash":   {"/openapi/v3/" + gv, nil, 200, "thing"},
		"with an old hash": {"/openapi/v3/" + gv + "?hash=OLD", nil, 301, ""},
		"known already":    {named, []string{"If-None-Match", etag}, 304, ""},
		"known long ago":   {named, []string{"If-None-Match", `"OLD"`}, 200, "thing"},
		"of nobody":        {"/openapi/v3/apis/c.example.org/v1", nil, 404, ""},
		"version 2":        {"/openapi/v2", nil, 200, "thing"},
		"in protobuf":      {named, []string{"Accept", "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"}, 200, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := o.get(c.path, c.header...)
			if w.Code != c.status || !strings.Contains(w.Body.String(), c.want) {
				t.Errorf("got %d %s, want %d and %q", w.Code, w.Body, c.status, c.want)
			}
			if w.Code == 200 && strings.HasPrefix(c.path, "/openapi/v3") && w.Header().Get("Etag") != etag {
				t.Errorf("ETag is %s, want %s", w.Header().Get("Etag"), etag)
			}
			if immutable := strings.Contains(w.Header().Get("Cache-Control"), "immutable"); w.Code == 200 && immutable != (c.path == named) {
				t.Errorf("immutable: %v", immutable)
			}
		})
	}
}

func TestOpenAPIETags(t *testing.T) {
	made := 0
	one, same, other := documented(&made), documented(&made), documented(&made)
	other.index("another fingerprint")
	for key, tag := range one.etags {
		if same.etags[key] != tag {
			t.Errorf("the ETag of %q differs between two servers that serve the same", key)
		}
		if other.etags[key] == tag {
			t.Errorf("the ETag of %q does not depend on the fingerprint", key)
		}
	}
	if one.etags["apis/a.example.org/v1"] == one.etags["apis/b.example.org/v1"] {
		t.Error("two documents have one ETag")
	}
}

func TestOpenAPIIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := 0
		o := documented(&made)
		want := func(n int) {
			t.Helper()
			if o.get("/openapi/v3/apis/a.example.org/v1").Code != 200 || made != n {
				t.Errorf("the schemas were made %d times, want %d", made, n)
			}
		}
		want(1)
		for range 5 {
			time.Sleep(openAPIIdle / 2)
			want(1)
		}
		time.Sleep(openAPIIdle + time.Second)
		synctest.Wait()
		if len(o.built) != 0 || o.defs != nil {
			t.Error("documents are kept although nobody asks")
		}
		want(2)
		time.Sleep(2 * openAPIIdle)
		synctest.Wait()
	})
}
