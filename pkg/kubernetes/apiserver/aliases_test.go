package apiserver

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// TestAliases: aliases are refused before anything is decoded, and all else comes as it was sent.
func TestAliases(t *testing.T) {
	const most = 1 << 20
	long := strings.Repeat("A", 20_000)
	object := apirequest.RequestInfo{IsResourceRequest: true}
	for name, c := range map[string]struct {
		info                  apirequest.RequestInfo
		format, body, refused string
	}{
		"values":       {info: object, format: "application/yaml", body: "spec: [&a " + long + strings.Repeat(", *a", 20_000) + "]\n", refused: "aliases"},
		"binary":       {info: object, format: "application/yaml; charset=utf-8", body: "spec: [&a !!binary " + long + ", *a, *a]\n", refused: "aliases"},
		"keys":         {info: object, format: "Application/YAML", body: "{? &a " + long + " : 1, *a : 1, *a : 1}\n", refused: "aliases"},
		"merged":       {info: object, format: "application/apply-patch+yaml", body: "a: &a {b: c}\nd: {<<: *a}\n", refused: "aliases"},
		"damaged":      {info: object, format: "application/yaml", body: "a: &a {b: c\nd: *a\n", refused: "reading YAML"},
		"JSON":         {info: object, format: "application/apply-patch+yaml", body: `{"rules": [{"verbs": ["*"]}], "data": "&a *a"}`},
		"quoted":       {info: object, format: "application/yaml", body: "verbs: ['*']\nscript: |\n  ls *a &a\n"},
		"no YAML":      {info: object, format: "application/json", body: "[&a 1, *a]"},
		"too long":     {info: object, format: "application/yaml", body: "[&a 1, *a" + strings.Repeat(" ", most)},
		"to a pod":     {info: apirequest.RequestInfo{IsResourceRequest: true, Subresource: "proxy"}, format: "application/yaml", body: "[&a 1, *a]"},
		"to something": {format: "application/yaml", body: "[&a 1, *a]"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			next := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				got = string(body)
			})
			r := httptest.NewRequest(http.MethodPost, "/api/v1/namespaces", strings.NewReader(c.body))
			r.Header.Set("Content-Type", c.format)
			w := httptest.NewRecorder()
			withoutAliases(next, most).ServeHTTP(w, r.WithContext(apirequest.WithRequestInfo(t.Context(), &c.info)))
			switch {
			case c.refused == "" && (w.Code != http.StatusOK || got != c.body):
				t.Errorf("%d %s; %d of %d bytes came", w.Code, w.Body, len(got), len(c.body))
			case c.refused != "" && (w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), c.refused) || got != ""):
				t.Errorf("%d %s; %d bytes came", w.Code, w.Body, len(got))
			}
		})
	}
}
