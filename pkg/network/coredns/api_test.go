package coredns

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

// TestAPIProxy: the child reads what DNS needs, and nothing else.
func TestAPIProxy(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer api.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := "{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: '" + api.URL + "'}}], contexts: [{name: c, context: {cluster: c}}], current-context: c}"
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	pods := false
	proxy, err := apiProxy(kubeconfig, func() bool { return pods })
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		method, url string
		pods        bool
		want        int
	}{
		{"GET", "/api/v1/services?watch=1", false, 200},
		{"GET", "/apis/discovery.k8s.io/v1/endpointslices", false, 200},
		{"GET", "/api/v1/namespaces", false, 200},
		{"GET", "/api/v1/pods", false, 403},
		{"GET", "/api/v1/pods", true, 200},
		{"POST", "/api/v1/services", false, 403},
		{"GET", "/api/v1/secrets", false, 403},
		{"GET", "/api/v1/namespaces/default/services/x/proxy", false, 403},
		{"GET", "/api/v1/services/../secrets", false, 403},
		{"GET", "/api/v1/nodes", false, 403},
	} {
		pods = tt.pods
		answer := httptest.NewRecorder()
		proxy.ServeHTTP(answer, httptest.NewRequest(tt.method, tt.url, nil))
		if answer.Code != tt.want {
			t.Errorf("%s %s: %d, want %d", tt.method, tt.url, answer.Code, tt.want)
		}
	}
}
