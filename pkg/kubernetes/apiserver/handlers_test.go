package apiserver

import (
	"net/http"
	"net/http/httptest"
	"testing"

	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

func answerWith(code int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) })
}

func TestGate(t *testing.T) {
	open := make(chan struct{})
	e := Extension{Prefix: "/ours/", Open: open, Closed: answerWith(http.StatusServiceUnavailable)}
	handler := e.gate(answerWith(http.StatusTeapot))
	ask := func(path string, want int) {
		t.Helper()
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
		if answer.Code != want {
			t.Errorf("%s: %d, want %d", path, answer.Code, want)
		}
	}
	ask("/ours/join", http.StatusServiceUnavailable)
	ask("/api/v1/nodes", http.StatusTeapot)
	close(open)
	ask("/ours/join", http.StatusTeapot)
}

func TestLongRunning(t *testing.T) {
	e := Extension{LongRunning: []string{"/ours/tunnel"}}
	check := e.longRunning(func(r *http.Request, _ *apirequest.RequestInfo) bool { return r.URL.Query().Has("watch") })
	for path, want := range map[string]bool{"/ours/tunnel": true, "/ours/tunnel/x": false, "/api?watch=1": true, "/api": false} {
		if got := check(httptest.NewRequest(http.MethodGet, path, nil), nil); got != want {
			t.Errorf("%s: %t", path, got)
		}
	}
}
