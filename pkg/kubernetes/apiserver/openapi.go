package apiserver

import (
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/emicklei/go-restful/v3"
	genericserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/server/routes"
	"k8s.io/component-base/version"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// openAPI serves the OpenAPI documents of the built-in APIs to the aggregation layer, in place of upstream's handlers.
//
// Upstream builds all documents at the start and keeps them: half a second of CPU and 45 MB, although most clusters never get a request for
// them. The documents depend only on the version, the feature gates and the enabled APIs, so ETags are computed from these. A document is
// built with upstream's code at the first request, and dropped when there was no request for openAPIIdle.
type openAPI struct {
	container *restful.Container
	v2        *common.Config
	v3        *common.OpenAPIV3Config
	etags     map[string]string // by path below /openapi/v3/; "" is the one document of version 2
	services  map[string]*restful.WebService

	mu    sync.Mutex
	built map[string]http.Handler // by the keys of etags
	defs  map[string]common.OpenAPIDefinition
	drop  *time.Timer
}

// openAPIIdle is how long documents are kept after the last request.
const openAPIIdle = 2 * time.Minute

// installOpenAPI adds the handlers to a server that skips the installation of its own.
func installOpenAPI(server *genericserver.GenericAPIServer, v2 *common.Config, v3 *common.OpenAPIV3Config, fingerprint string) {
	o := &openAPI{container: server.Handler.GoRestfulContainer, v2: v2, v3: v3}
	o.index(fingerprint)
	handler := server.Handler.NonGoRestfulMux
	handler.Handle("/openapi/v2", http.HandlerFunc(o.serveV2))
	handler.Handle("/openapi/v3", http.HandlerFunc(o.serveDiscovery))
	handler.HandlePrefix("/openapi/v3/", http.HandlerFunc(o.serveV3))
}

// index lists the documents and computes their ETags. fingerprint has everything that they depend on besides the routes.
func (o *openAPI) index(fingerprint string) {
	o.etags, o.services, o.built = map[string]string{}, map[string]*restful.WebService{}, map[string]http.Handler{}
	for _, service := range o.container.RegisteredWebServices() {
		gv := strings.TrimPrefix(service.RootPath(), "/")
		o.services[gv] = service
		o.etags[gv] = etag(service, fingerprint)
	}
	all := sha512.New()
	for _, gv := range slices.Sorted(maps.Keys(o.etags)) {
		io.WriteString(all, o.etags[gv])
	}
	o.etags[""] = fmt.Sprintf("%X", all.Sum(nil))
}

// etag returns the ETag of the document of one service.
func etag(service *restful.WebService, fingerprint string) string {
	h := sha512.New()
	fmt.Fprintln(h, version.Get(), fingerprint, service.RootPath())
	for _, route := range service.Routes() {
		fmt.Fprintln(h, route.Method, route.Path, route.Operation, route.Consumes, route.Produces)
	}
	return fmt.Sprintf("%X", h.Sum(nil))
}

// serveDiscovery serves the list of documents of version 3.
func (o *openAPI) serveDiscovery(w http.ResponseWriter, r *http.Request) {
	answer := handler3.OpenAPIV3Discovery{Paths: map[string]handler3.OpenAPIV3DiscoveryGroupVersion{}}
	for gv := range o.services {
		answer.Paths[gv] = handler3.OpenAPIV3DiscoveryGroupVersion{ServerRelativeURL: documentURL(gv, o.etags[gv])}
	}
	w.Header().Set("Content-Type", "application/json")
	if notModified(w, r, o.etags[""]) {
		return
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func documentURL(gv, hash string) string {
	u := url.URL{Path: "/openapi/v3/" + gv, RawQuery: url.Values{"hash": {hash}}.Encode()}
	return u.String()
}

// serveV3 serves the document of one group and version.
func (o *openAPI) serveV3(w http.ResponseWriter, r *http.Request) {
	gv := strings.TrimPrefix(r.URL.Path, "/openapi/v3/")
	if _, ok := o.services[gv]; !ok {
		http.NotFound(w, r)
		return
	}
	tag := o.etags[gv]
	switch hash := r.URL.Query().Get("hash"); hash {
	case tag:
		// The URL contains a hash of the content, so the content never changes.
		w.Header().Set("Cache-Control", "public, immutable")
		w.Header().Set("Expires", time.Now().AddDate(1, 0, 0).Format(time.RFC1123))
	case "":
	default:
		http.Redirect(w, r, documentURL(gv, tag), http.StatusMovedPermanently)
		return
	}
	w.Header().Set("Vary", "Accept")
	o.serve(w, r, gv)
}

func (o *openAPI) serveV2(w http.ResponseWriter, r *http.Request) { o.serve(w, r, "") }

// serve serves a document with the ETag of etags. Upstream's ETag is a hash of the built document.
func (o *openAPI) serve(w http.ResponseWriter, r *http.Request, key string) {
	if notModified(w, r, o.etags[key]) {
		return
	}
	plain := r.Clone(r.Context())
	plain.URL.RawQuery = ""
	plain.Header.Del("If-None-Match")
	o.document(key).ServeHTTP(etagWriter{w, strconv.Quote(o.etags[key])}, plain)
}

// notModified answers a conditional request of a client that has the current document, and reports whether it did.
func notModified(w http.ResponseWriter, r *http.Request, tag string) bool {
	w.Header().Set("Etag", strconv.Quote(tag))
	if !strings.Contains(r.Header.Get("If-None-Match"), strconv.Quote(tag)) {
		return false
	}
	w.WriteHeader(http.StatusNotModified)
	return true
}

// document returns upstream's handler of a document, and builds it if necessary.
func (o *openAPI) document(key string) http.Handler {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.drop == nil {
		o.drop = time.AfterFunc(openAPIIdle, o.forget)
	}
	o.drop.Reset(openAPIIdle)
	if h, ok := o.built[key]; ok {
		return h
	}
	m := mux.NewPathRecorderMux("openapi")
	if key == "" {
		routes.OpenAPI{Config: o.v2}.InstallV2(o.container, m)
	} else {
		if o.defs == nil {
			o.defs = o.v3.GetDefinitions(o.reference)
		}
		v3 := *o.v3
		v3.Definitions = o.defs
		one := restful.NewContainer()
		one.Add(o.services[key])
		routes.OpenAPI{V3Config: &v3}.InstallV3(one, m)
	}
	o.built[key] = m
	return m
}

// reference returns a reference to a schema of version 3.
func (o *openAPI) reference(name string) spec.Ref {
	def, _ := o.v3.GetDefinitionName(name)
	return spec.MustCreateRef("#/components/schemas/" + common.EscapeJsonPointer(def))
}

func (o *openAPI) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.built, o.defs = map[string]http.Handler{}, nil
}

// etagWriter replaces the ETag in the header by tag.
type etagWriter struct {
	http.ResponseWriter
	tag string
}

func (w etagWriter) WriteHeader(status int) {
	w.Header().Set("Etag", w.tag)
	w.ResponseWriter.WriteHeader(status)
}

func (w etagWriter) Write(data []byte) (int, error) {
	w.Header().Set("Etag", w.tag)
	return w.ResponseWriter.Write(data)
}
